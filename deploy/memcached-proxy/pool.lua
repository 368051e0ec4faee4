-- What memcached's proxy needs to distribute keys over servers of relativistd. Replace the addresses by those of your
-- servers, and start the proxy:
--   memcached -p 11311 -o proxy_config=routelib,proxy_arg=pool.lua
settings{
    -- Seconds, after which a request fails.
    backend_connect_timeout = 2,
    backend_read_timeout = 2,
    -- A server that is down keeps its keys. Requests for them fail at once, and the proxy connects again every second.
    backend_retry_waittime = 1,
}
pools{
    cache = {
        -- ketama: adding or removing a server moves only its share of the keys.
        options = { dist = mcp.dist_ring_hash },
        backends = {
            "10.0.0.1:11211",
            "10.0.0.2:11211",
            "10.0.0.3:11211",
        },
    },
}
routes{
    default = route_direct{ child = "cache" },
}
