//! The programs: what each is made of, and the command that runs it once. Each ends by itself.

use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::setup::{self, Ready};

/// One of the nine.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// A library to load before the program's own, and its package.
    preload: Option<(&'static str, &'static str)>,
    /// What its user had set before, outside of the command: what is tried comes after it.
    pub(super) environment: &'static [(&'static str, &'static str)],
    kind: Kind,
}

enum Kind {
    /// Threads that allocate and free, each this many blocks.
    Arenas(&'static str),
    Go,
    Java,
    Redis,
    Lmdb,
    Compile,
}

const fn arenas(
    name: &'static str,
    preload: Option<(&'static str, &'static str)>,
    environment: &'static [(&'static str, &'static str)],
    blocks: &'static str,
) -> Program {
    Program { name, preload, environment, kind: Kind::Arenas(blocks) }
}

const fn plain(name: &'static str, kind: Kind) -> Program {
    Program { name, preload: None, environment: &[], kind }
}

/// All of them. jemalloc, tcmalloc and mimalloc give memory back at once here, as those set them who count their
/// memory: by default jemalloc waits for ten seconds, longer than this program runs, tcmalloc gives back little, and
/// mimalloc waits for 25 ms. Each takes half a second to two of CPU time: shorter ones are noise.
pub(super) const PROGRAMS: &[Program] = &[
    arenas("glibc arenas", None, &[], "20000"),
    arenas(
        "jemalloc",
        Some(("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "libjemalloc2")),
        &[("MALLOC_CONF", "dirty_decay_ms:0")],
        "10000",
    ),
    arenas(
        "tcmalloc",
        Some(("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4", "libtcmalloc-minimal4")),
        &[("TCMALLOC_AGGRESSIVE_DECOMMIT", "1")],
        "150000",
    ),
    arenas(
        "mimalloc",
        Some(("/usr/lib/x86_64-linux-gnu/libmimalloc.so.2", "libmimalloc2.0")),
        &[("MIMALLOC_DECOMMIT_DELAY", "0"), ("MIMALLOC_PURGE_DELAY", "0")],
        "15000",
    ),
    plain("Go", Kind::Go),
    plain("JVM", Kind::Java),
    plain("redis", Kind::Redis),
    plain("LMDB", Kind::Lmdb),
    plain("compile", Kind::Compile),
];

const ARENAS: &str = include_str!("programs/arenas.c");
const GO: &str = include_str!("programs/giving.go");
const JAVA: &str = include_str!("programs/Heap.java");
const READER: &str = include_str!("programs/reader.c");
const READER_RUN: &str = include_str!("programs/reader.sh");
const REDIS: &str = include_str!("programs/redis.sh");
const COMPILE: &str = include_str!("programs/compile.sh");

/// The words of a command, or what would make it possible.
type Words = Result<Vec<OsString>, String>;

impl Program {
    /// The command, once all that it needs is there.
    pub(super) fn command(&self, folder: &Path) -> Result<Words> {
        let mut words: Vec<OsString> = Vec::new();
        if let Some((file, package)) = self.preload {
            match setup::file(file, package) {
                Ready::Yes(file) => words.extend(["env".into(), format!("LD_PRELOAD={}", file.display()).into()]),
                Ready::No(how) => return Ok(Err(how)),
            }
        }
        let own = match self.kind {
            Kind::Arenas(blocks) => arenas_words(folder, blocks)?,
            Kind::Go => go(folder)?,
            Kind::Java => java(folder)?,
            Kind::Redis => redis(folder)?,
            Kind::Lmdb => lmdb(folder)?,
            Kind::Compile => compile(folder)?,
        };
        Ok(own.map(|own| words.into_iter().chain(own).collect()))
    }
}

/// Writes a source or a script.
fn written(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let file = folder.join(name);
    fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    Ok(file)
}

/// Runs a compiler; what it said, if it failed.
fn compiled(command: &mut Command) -> Result<Result<(), String>> {
    let output = command.output().with_context(|| format!("running {}", command.get_program().display()))?;
    let said = || String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned();
    Ok(if output.status.success() { Ok(()) } else { Err(said()) })
}

/// A C program; `more` names libraries.
fn c_program(folder: &Path, source: &str, name: &str, more: &[&str]) -> Result<Result<PathBuf, String>> {
    if let Ready::No(how) = setup::program(&["gcc"], "gcc libc6-dev") {
        return Ok(Err(how));
    }
    let (source, program) = (written(folder, &format!("{name}.c"), source)?, folder.join(name));
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-pthread", "-o"]).arg(&program).arg(source).args(more);
    Ok(compiled(&mut gcc)?.map(|()| program))
}

fn arenas_words(folder: &Path, blocks: &str) -> Result<Words> {
    Ok(c_program(folder, ARENAS, "arenas", &[])?.map(|program| vec![program.into(), blocks.into()]))
}

fn go(folder: &Path) -> Result<Words> {
    let go = match setup::program(&["go"], "golang-go") {
        Ready::Yes(go) => go,
        Ready::No(how) => return Ok(Err(how)),
    };
    let (source, program) = (written(folder, "giving.go", GO)?, folder.join("giving"));
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&program).arg(source).env("GOCACHE", folder.join("go-cache"));
    Ok(compiled(&mut build)?.map(|()| vec![program.into()]))
}

fn java(folder: &Path) -> Result<Words> {
    let javac = match setup::program(&["javac"], "default-jdk-headless") {
        Ready::Yes(javac) => javac,
        Ready::No(how) => return Ok(Err(how)),
    };
    let source = written(folder, "Heap.java", JAVA)?;
    let mut build = Command::new(javac);
    build.arg("-d").arg(folder).arg(source);
    let words =
        ["java", "-XX:+UseSerialGC", "-Xms8m", "-Xmx400m", "-XX:MinHeapFreeRatio=5", "-XX:MaxHeapFreeRatio=10", "-cp"];
    let words = words.iter().map(OsString::from).chain([folder.into(), "Heap".into()]).collect();
    Ok(compiled(&mut build)?.map(|()| words))
}

fn script(folder: &Path, name: &str, text: &str, argument: Option<PathBuf>) -> Result<Vec<OsString>> {
    let script = written(folder, name, text)?;
    Ok(["sh".into(), script.into()].into_iter().chain(argument.map(OsString::from)).collect())
}

fn redis(folder: &Path) -> Result<Words> {
    for (program, package) in [("redis-server", "redis-server"), ("redis-benchmark", "redis-tools")] {
        if let Ready::No(how) = setup::program(&[program], package) {
            return Ok(Err(how));
        }
    }
    script(folder, "redis.sh", REDIS, None).map(Ok)
}

fn lmdb(folder: &Path) -> Result<Words> {
    if let Ready::No(how) = setup::file("/usr/include/lmdb.h", "liblmdb-dev") {
        return Ok(Err(how));
    }
    match c_program(folder, READER, "reader", &["-llmdb"])? {
        Ok(program) => script(folder, "reader.sh", READER_RUN, Some(program)).map(Ok),
        Err(how) => Ok(Err(how)),
    }
}

fn compile(folder: &Path) -> Result<Words> {
    if let Ready::No(how) = setup::program(&["gcc"], "gcc libc6-dev") {
        return Ok(Err(how));
    }
    let functions = (0..150).map(|n| format!("int f{n}(int x) {{ return x < {n} ? f{n}(x + 1) : x * {n}; }}\n"));
    let source = written(folder, "many.c", &functions.collect::<String>())?;
    script(folder, "compile.sh", COMPILE, Some(source)).map(Ok)
}
