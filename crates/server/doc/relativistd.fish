complete -c relativistd -s p -l port -d 'TCP port; 0 for none, -1 for any free one [default: 11211]' -r
complete -c relativistd -s U -l udp-port -d 'UDP port; 0 for none, -1 for any free one. Given alone, the TCP port too' -r
complete -c relativistd -s s -l unix-socket -d 'Unix socket to listen on instead of TCP and UDP' -r -F
complete -c relativistd -s a -l unix-mask -d 'Access mode of the Unix socket, in octal' -r
complete -c relativistd -s l -l listen -d 'Addresses to listen on: IP, IP:PORT, [IPv6]:PORT, host name, or * for all; loopback only if not given. With -Z, notls: before one leaves it in plain text, btls: asks clients for no certificate, and mtls: requires one' -r
complete -c relativistd -s u -l user -d 'User to become when started as root' -r
complete -c relativistd -s m -l memory-limit -d 'Memory for items and table, in MiB' -r
complete -c relativistd -l engine -d 'Who stores the items' -r -f -a "relativistic\t'Lookups take no lock'
global-lock\t'One mutex around all of it, for comparison'"
complete -c relativistd -l io -d 'How to do input and output' -r -f -a "auto\t'io_uring where the kernel has and allows it, epoll otherwise'
uring\t'io_uring (Linux 6.1); containers often forbid it'
epoll\t'epoll'"
complete -c relativistd -s c -l conn-limit -d 'Connections at a time' -r
complete -c relativistd -l config -d 'File with more options in TOML: the long names are its keys. The command line wins' -r -F
complete -c relativistd -l log-format -d 'Form of the messages on stderr' -r -f -a "text\t'A line of text'
json\t'An object of JSON in a line'"
complete -c relativistd -l admin -d 'Offer metrics, a health check and a status page by HTTP there: PORT of the loopback interface, or IP:PORT' -r
complete -c relativistd -s P -l pidfile -d 'File to write the process id to' -r -F
complete -c relativistd -s f -l slab-growth-factor -d 'Growth of slab classes; without effect: there are none' -r
complete -c relativistd -s n -l slab-min-size -d 'Smallest slab class; without effect' -r
complete -c relativistd -s D -l delimiter -d 'Count commands by prefix of the key, up to this character (stats detail)' -r
complete -c relativistd -s t -l threads -d 'Worker threads' -r
complete -c relativistd -s R -l max-reqs-per-event -d 'Requests that a connection may have executed in a row while others wait' -r
complete -c relativistd -l drain -d 'Seconds for which SIGTERM and SIGUSR1 let open connections go on while new ones are refused; a second signal ends that' -r
complete -c relativistd -s b -l listen-backlog -d 'Connections that the kernel completes before they are accepted' -r
complete -c relativistd -s B -l protocol -d 'Protocol to speak' -r -f -a "auto\t'The first byte tells'
ascii\t'Text only'
binary\t'Binary only'"
complete -c relativistd -s I -l max-item-size -d 'Largest item, key included; k and m stand for KiB and MiB' -r
complete -c relativistd -s Y -l auth-file -d 'Require a login by one of the users in this file, a line user:password each; text protocol only' -r -F
complete -c relativistd -s e -l snapshot -d 'File to keep items in over a restart: read and removed at the start, written at the end and on SIGUSR2' -r -F
complete -c relativistd -s N -l napi-ids -d 'Receive queues of the network card to spread connections by; without effect' -r
complete -c relativistd -s o -l extended -d 'More options, see below' -r
complete -c relativistd -l generate -d 'Print what is made of these definitions for packages' -r -f -a "man\t'The page of the manual, for man(1)'
bash\t'Completions for bash'
zsh\t'Completions for zsh'
fish\t'Completions for fish'"
complete -c relativistd -s d -l daemon -d 'Run in the background'
complete -c relativistd -s r -l enable-coredumps -d 'Let the kernel write core files as large as the hard limit allows'
complete -c relativistd -s M -l disable-evictions -d 'Refuse new items when memory is exhausted, instead of dropping old ones'
complete -c relativistd -s k -l lock-memory -d 'Keep all memory out of swap'
complete -c relativistd -s v -l verbose -d 'Say more on stderr: -v clients that are refused or lost, -vv all that they say (but values) and hear, -vvv everything'
complete -c relativistd -l check -d 'Only check the options, those of --config included'
complete -c relativistd -s i -l license -d 'Print the license'
complete -c relativistd -s L -l enable-largepages -d 'Use large pages; without effect: that is for the kernel to decide'
complete -c relativistd -s C -l disable-cas -d 'Give items no uniques: compare-and-swap is off'
complete -c relativistd -s S -l enable-sasl -d 'Require a SASL login; binary protocol only. Users are in the file that MEMCACHED_SASL_PWDB names'
complete -c relativistd -s F -l disable-flush-all -d 'Refuse flush_all'
complete -c relativistd -s X -l disable-dumping -d 'Refuse dumps of keys'
complete -c relativistd -s W -l disable-watch -d 'Refuse watch'
complete -c relativistd -s A -l enable-shutdown -d 'Offer the command shutdown'
complete -c relativistd -l warm-after-crash -d 'Start with the last snapshot after a crash, too: what clients deleted or changed since is back as it was'
complete -c relativistd -s Z -l enable-ssl -d 'Encrypt TCP connections (TLS), with the certificate that -o ssl_chain_cert names'
complete -c relativistd -l debug-time -d 'Offer the command `debugtime`, by which tests move the clock, and begin uniques at 1'
complete -c relativistd -s h -l help -d 'Print help (see more with \'--help\')'
complete -c relativistd -s V -l version -d 'Print version'
