// A session by spymemcached, in text and in the binary protocol: java Session.java PORT.

import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactory;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.ConnectionFactoryBuilder.Protocol;
import net.spy.memcached.MemcachedClient;

public final class Session {
    public static void main(String[] arguments) throws Exception {
        InetSocketAddress server = new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]));
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        java.util.logging.Logger.getLogger("net.spy.memcached").setLevel(java.util.logging.Level.WARNING);
        try {
            session("text", factory(Protocol.TEXT), server);
            session("binary", factory(Protocol.BINARY), server);
        } catch (Throwable fault) {
            // The client's threads would go on.
            fault.printStackTrace();
            System.exit(1);
        }
    }

    // By default it waits for 2.5 seconds, and the machine may be busy.
    private static ConnectionFactory factory(Protocol protocol) {
        return new ConnectionFactoryBuilder().setProtocol(protocol).setOpTimeout(60_000).build();
    }

    private static void session(String protocol, ConnectionFactory factory, InetSocketAddress server) throws Exception {
        MemcachedClient client = new MemcachedClient(factory, List.of(server));
        check(client.flush().get(), true);
        check(client.getVersions().get(server), "1.6.45");
        check(client.set("key", 0, "value").get(), true);
        check(client.get("key"), "value");
        check(client.get("absent"), null);
        check(client.add("key", 0, "other").get(), false);
        check(client.add("new", 0, "1").get(), true);
        check(client.replace("absent", 0, "other").get(), false);
        check(client.replace("new", 0, "2").get(), true);
        check(client.append("key", "+").get(), true);
        check(client.prepend("key", "-").get(), true);
        check(client.get("key"), "-value+");

        CASValue<Object> value = client.gets("key");
        check(client.cas("key", value.getCas(), "swapped"), CASResponse.OK);
        check(client.cas("key", value.getCas(), "again"), CASResponse.EXISTS);
        check(client.cas("absent", value.getCas(), "again"), CASResponse.NOT_FOUND);

        check(client.incr("number", 5, 10), 10L);
        check(client.incr("number", 5), 15L);
        check(client.decr("number", 20), 0L);
        check(client.incr("absent", 1), -1L);

        check(client.touch("key", 100).get(), true);
        check(client.touch("absent", 100).get(), false);
        if (protocol.equals("binary")) {
            // This client has no `gat` in text.
            check(client.getAndTouch("key", 100).getValue(), "swapped");
        }
        check(client.set("gone", 1, "x").get(), true);
        check(client.delete("key").get(), true);
        check(client.delete("key").get(), false);

        byte[] big = new byte[1_000_000];
        Arrays.fill(big, (byte) 7);
        check(client.set("big", 0, big).get(), true);
        check(Arrays.equals((byte[]) client.get("big"), big), true);

        Map<String, Object> many = new HashMap<>();
        for (int n = 0; n < 5000; n++) {
            many.put("k" + n, "v" + n);
            client.set("k" + n, 0, "v" + n);
        }
        check(client.waitForQueues(1, TimeUnit.MINUTES), true);
        check(client.getBulk(many.keySet()), many);
        check(client.getStats().get(server).get("version"), "1.6.45");
        check(client.getStats("settings").get(server).get("evictions"), "on");
        client.shutdown();
        System.out.println("spymemcached, " + protocol + ": all as expected");
    }

    private static void check(Object got, Object wanted) {
        if (!Objects.equals(got, wanted)) {
            throw new AssertionError(got + " instead of " + wanted);
        }
    }
}
