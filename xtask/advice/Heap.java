/** A heap that grows by short-lived objects and shrinks when it is collected. */
public class Heap {
    static byte[][] kept = new byte[64][];

    public static void main(String[] arguments) {
        for (int round = 0; round < 12; round++) {
            for (int n = 0; n < 6400; n++) {
                kept[n % kept.length] = new byte[50000 + n % 1000];
                kept[n % kept.length][n % 50000] = 1;
            }
            java.util.Arrays.fill(kept, null);
            System.gc();
        }
    }
}
