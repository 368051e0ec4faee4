complete -c relativistd -s p -l port -d 'TCP port; 0 for none, -1 for any free one [default: 11211]' -r
complete -c relativistd -s U -l udp-port -d 'UDP port; 0 for none, -1 for any free one. Without -p, also the TCP port' -r
complete -c relativistd -s s -l unix-socket -d 'Unix socket to listen on instead of TCP and UDP' -r -F
complete -c relativistd -s a -l unix-mask -d 'Access mode of the Unix socket, in octal' -r
complete -c relativistd -s l -l listen -d 'Addresses to listen on: IP, IP:PORT, [IPv6]:PORT, host name, or * for all [default: loopback only]. With -Z, a prefix changes TLS for one address, as in notls:127.0.0.1. notls means plain text, btls no client certificate, mtls a required client certificate. nologin: on a loopback address lets clients in without -Y or -S' -r
complete -c relativistd -s u -l user -d 'User to become when started as root' -r
complete -c relativistd -s m -l memory-limit -d 'Memory for items and table, in MiB, at most 131072; auto takes three quarters of the limit of the control group (the container), or of the machine\'s memory' -r
complete -c relativistd -l io -d 'How workers read and write sockets' -r -f -a "auto\t'io_uring if the kernel supports and allows it, otherwise epoll'
uring\t'io_uring (Linux 6.1); containers often forbid it'
epoll\t'epoll'"
complete -c relativistd -s c -l conn-limit -d 'Maximum number of connections' -r
complete -c relativistd -l config -d 'TOML file with more options; its keys are the long option names. The command line takes precedence' -r -F
complete -c relativistd -l log-format -d 'Format of log messages on stderr' -r -f -a "text\t'One line of text per message'
json\t'One JSON object per message'"
complete -c relativistd -l admin -d 'Serve metrics, health checks and a status page over HTTP at this address: PORT (loopback) or IP:PORT' -r
complete -c relativistd -l admin-host -d 'Host name by which clients may address --admin, besides IP addresses and localhost' -r
complete -c relativistd -l cluster-node -d 'A node of the cluster, HOST|IP|PORT, for clients that ask by `config get cluster`; may be given several times' -r
complete -c relativistd -l hot-keys -d 'Show the most read and the most written keys (stats hotkeys, --admin)' -r -f -a "off\t'Do not look for them'
hashed\t'Show their hashes'
clear\t'Show the keys, also to all clients of --admin'"
complete -c relativistd -s P -l pidfile -d 'File to write the process id to' -r -F
complete -c relativistd -s f -l slab-growth-factor -d 'Growth factor of slab classes; ignored (there are no slab classes)' -r
complete -c relativistd -s n -l slab-min-size -d 'Smallest slab class; ignored' -r
complete -c relativistd -s D -l delimiter -d 'Count commands by key prefix, up to this character (stats detail)' -r
complete -c relativistd -s t -l threads -d 'Worker threads' -r
complete -c relativistd -s R -l max-reqs-per-event -d 'Maximum number of requests per connection before other connections are served' -r
complete -c relativistd -l drain -d 'After SIGTERM or SIGUSR1, serve open connections for this many seconds and refuse new ones; a second signal ends this at once' -r
complete -c relativistd -l hand-over -d 'Unix socket (mode 600) at which a process of the same user can take over sockets and items' -r -F
complete -c relativistd -l take-over -d 'Take sockets and items over from the server with --hand-over PATH, which then ends' -r -F
complete -c relativistd -s b -l listen-backlog -d 'Maximum number of connections that wait to be accepted (listen backlog)' -r
complete -c relativistd -s B -l protocol -d 'Protocol of connections [default: auto]' -r -f -a "auto\t'Detect the protocol by the first byte of the connection'
ascii\t'Text protocol'
binary\t'Binary protocol'"
complete -c relativistd -s I -l max-item-size -d 'Maximum item size, key included; suffix k or m for KiB or MiB' -r
complete -c relativistd -s Y -l auth-file -d 'Require authentication by a user of this file, one user:password per line; text protocol only. The line [tenant NAME memory=25%] gives the users after it a cache of their own' -r -F
complete -c relativistd -s e -l snapshot -d 'Keep items in this file across restarts: it is read and removed at start, and written at exit and on SIGUSR2' -r -F
complete -c relativistd -s N -l napi-ids -d 'Number of network card receive queues; ignored' -r
complete -c relativistd -s o -l extended -d 'More options, see below' -r
complete -c relativistd -l generate -d 'Print the man page or a shell completion' -r -f -a "man\t'The page of the manual, for man(1)'
bash\t'Completions for bash'
zsh\t'Completions for zsh'
fish\t'Completions for fish'"
complete -c relativistd -s d -l daemon -d 'Run in the background'
complete -c relativistd -s r -l enable-coredumps -d 'Let the kernel write core files as large as the hard limit allows'
complete -c relativistd -s M -l disable-evictions -d 'Refuse new items when memory is full, instead of evicting old ones'
complete -c relativistd -s k -l lock-memory -d 'Keep all memory out of swap'
complete -c relativistd -s v -l verbose -d 'Log more on stderr: -v refused and lost connections, -vv every request and reply (no values), -vvv internal events'
complete -c relativistd -l check -d 'Check the options, including those of --config, and exit'
complete -c relativistd -l no-sizing -d 'Do not estimate the hit ratios of other memory limits (stats sizing, --admin)'
complete -c relativistd -s i -l license -d 'Print the license'
complete -c relativistd -s L -l enable-largepages -d 'Use large pages; ignored (the kernel decides)'
complete -c relativistd -s C -l disable-cas -d 'Disable compare-and-swap: items get no CAS value'
complete -c relativistd -s S -l enable-sasl -d 'Require SASL authentication; binary protocol only. MEMCACHED_SASL_PWDB names the file with the users'
complete -c relativistd -s F -l disable-flush-all -d 'Refuse flush_all'
complete -c relativistd -s X -l disable-dumping -d 'Refuse commands that list keys'
complete -c relativistd -s W -l disable-watch -d 'Refuse the watch command'
complete -c relativistd -l disable-verbosity -d 'Refuse the verbosity command'
complete -c relativistd -s A -l enable-shutdown -d 'Enable the shutdown command'
complete -c relativistd -l warm-after-crash -d 'Load the last snapshot after a crash, too. Deletions and changes made since are lost'
complete -c relativistd -s Z -l enable-ssl -d 'Encrypt TCP connections (TLS); needs -o ssl_chain_cert and ssl_key'
complete -c relativistd -l debug-time -d 'Enable the command `debugtime`, by which tests move the clock, and start CAS values at 1'
complete -c relativistd -s h -l help -d 'Print help (see more with \'--help\')'
complete -c relativistd -s V -l version -d 'Print version'
