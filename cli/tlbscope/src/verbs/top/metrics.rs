//! The sums since the begin for a fleet's own monitoring: as a file for node_exporter, and by HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use tlbkit_output::note;

use super::ledger::{Ledger, Program};

/// What is counted: a name, what it is, and where it stands.
type Metric = (&'static str, &'static str, fn(&Program) -> f64);

const METRICS: [Metric; 6] = [
    ("flushes_total", "Flushes of the program's own space, by its own CPUs.", |one| one.flushes as f64),
    ("asked_total", "Flushes for which other CPUs were asked.", |one| one.asked as f64),
    ("interrupts_total", "Interrupts of other CPUs for these flushes.", |one| one.interrupts as f64),
    ("own_seconds_total", "Time that the program waited for their answers.", |one| one.own_ns as f64 / 1e9),
    ("others_seconds_total", "Time that others spent in handlers for it.", |one| one.others_ns as f64 / 1e9),
    ("everything_total", "Flushes that dropped the whole space.", |one| one.everything as f64),
];

/// The sums in the text format of Prometheus. Programs are named as `ps -o comm` does: no command line is in it.
pub(super) fn text(sums: &Ledger) -> String {
    let mut text = String::new();
    for (name, help, value) in METRICS {
        text += &format!("# HELP tlbscope_{name} {help}\n# TYPE tlbscope_{name} counter\n");
        for (program, one) in &sums.programs {
            text += &format!("tlbscope_{name}{{program=\"{}\"}} {}\n", escaped(program), value(one));
        }
    }
    let lost = "# HELP tlbscope_lost_events_total Events that were lost.\n# TYPE tlbscope_lost_events_total counter\n";
    text + lost + &format!("tlbscope_lost_events_total {}\n", sums.lost)
}

fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// What is served: written after each interval.
pub(super) type Page = Arc<Mutex<String>>;

/// Where to listen: a port alone is of this machine alone.
pub(super) fn address(text: &str) -> Result<SocketAddr> {
    let port = text.strip_prefix(':').unwrap_or(text);
    let whole = if port.parse::<u16>().is_ok() { format!("127.0.0.1:{port}") } else { text.to_owned() };
    let resolved = whole.to_socket_addrs().ok().and_then(|mut all| all.next());
    resolved.with_context(|| format!("--prometheus {text}: want a port, as 9101, or an address, as 0.0.0.0:9101"))
}

/// Serves the page to all who ask, one after the other, as long as this program runs.
pub(super) fn serve(address: SocketAddr, page: Page) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("--prometheus {address}"))?;
    let address = listener.local_addr().context("the address that was chosen")?;
    note!("tlbscope: http://{address}/metrics");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // One that went away has what it wanted, or asks again.
            let _ = answer(&mut stream, &page);
        }
    });
    Ok(())
}

fn answer(stream: &mut TcpStream, page: &Page) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut request = BufReader::new(stream.try_clone()?).take(8192);
    let (mut line, mut header) = (String::new(), String::new());
    request.read_line(&mut line)?;
    // What is asked for is the first line; the rest is read so that it is not taken for a refusal.
    while request.read_line(&mut header)? > 2 {
        header.clear();
    }
    let words: Vec<_> = line.split_whitespace().collect();
    let (status, body) = match words.as_slice() {
        ["GET", "/metrics", ..] => ("200 OK", page.lock().unwrap_or_else(PoisonError::into_inner).clone()),
        ["GET", ..] => ("404 Not Found", "want /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "want GET\n".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_sums_are_in_seconds() {
        let mut sums = Ledger::default();
        sums.programs.insert("a\"b".into(), Program { own_ns: 1_500_000_000, flushes: 7, ..Program::default() });
        let text = text(&sums);
        assert!(text.contains("tlbscope_own_seconds_total{program=\"a\\\"b\"} 1.5\n"), "{text}");
        assert!(text.contains("tlbscope_flushes_total{program=\"a\\\"b\"} 7\n"), "{text}");
        assert!(text.ends_with("tlbscope_lost_events_total 0\n"), "{text}");
    }

    #[test]
    fn a_port_alone_is_of_this_machine_alone() {
        let of = |text: &str| address(text).unwrap().to_string();
        assert_eq!(
            (of("9101"), of(":9101"), of("0.0.0.0:9101")),
            ("127.0.0.1:9101".into(), "127.0.0.1:9101".into(), "0.0.0.0:9101".into())
        );
        assert!(address("nowhere").unwrap_err().to_string().starts_with("--prometheus nowhere: want a port"));
    }

    #[test]
    fn it_is_read_and_nothing_else() {
        let page: Page = Arc::new(Mutex::new("sums\n".to_owned()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap();
        let ask = |request: &str| {
            let mut client = TcpStream::connect(place).unwrap();
            write!(client, "{request} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            answer(&mut listener.accept().unwrap().0, &page).unwrap();
            let mut said = String::new();
            client.read_to_string(&mut said).unwrap();
            said
        };
        let said = ask("GET /metrics");
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n\r\nsums\n"), "{said}");
        assert!(ask("GET /").starts_with("HTTP/1.1 404 ") && ask("POST /metrics").starts_with("HTTP/1.1 405 "));
    }
}
