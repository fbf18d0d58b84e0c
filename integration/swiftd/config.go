//go:build linux

package swiftd

const swiftConf = `[swift-hash]
swift_hash_path_suffix = tests
swift_hash_path_prefix = tests
[storage-policy:0]
name = Policy-0
default = yes
`

// proxyConf takes the port, the folder, memcached's port and who runs it.
const proxyConf = `[DEFAULT]
bind_ip = 127.0.0.1
bind_port = %[1]d
workers = 0
user = %[4]s
swift_dir = %[2]s/etc
log_level = INFO
[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck proxy-logging cache listing_formats bulk tempauth copy slo dlo versioned_writes symlink proxy-logging proxy-server
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
storage_url_scheme = http
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:proxy-logging]
use = egg:swift#proxy_logging
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:%[3]d
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:bulk]
use = egg:swift#bulk
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
min_segment_size = 1
[filter:dlo]
use = egg:swift#dlo
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_versioned_writes = true
[filter:symlink]
use = egg:swift#symlink
`

// serverConf takes the port, the folder, the kind and who runs it.
const serverConf = `[DEFAULT]
bind_ip = 127.0.0.1
bind_port = %[1]d
workers = 0
user = %[4]s
swift_dir = %[2]s/etc
devices = %[2]s/dev
mount_check = false
disable_fallocate = true
log_level = INFO
[pipeline:main]
pipeline = healthcheck %[3]s-server
[app:%[3]s-server]
use = egg:swift#%[3]s
[filter:healthcheck]
use = egg:swift#healthcheck
`
