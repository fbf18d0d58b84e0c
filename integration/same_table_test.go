package integration_test

// everyAnswer asks for each kind of answer that the servers know.
var everyAnswer = []ask{
	{},
	{path: "/x?a=1&b=%20"},
	{method: "HEAD", path: "/large"},
	{path: "/large"},
	{path: "/chunked"},
	{path: "/events"},
	{path: "/trailers"},
	{path: "/early-hints"},
	{path: "/empty"},
	{path: "/not-modified"},
	{path: "/redirect"},
	{path: "/cookies"},
	{path: "/gzip"},
	{path: "/gzip", header: []string{"Accept-Encoding", "gzip"}},
	{path: "/x?status=404"},
	{path: "/x?status=500"},
	{path: "/partial"},
	{path: "/header-only"},
	{path: "/cut-chunks"},
	{path: "/x", header: []string{"Te", "trailers", "Connection", "X-Hop", "X-Hop", "1", "X-Forwarded-For", "10.0.0.1", "Cookie", "a=b", "Cookie", "c=d"}},
	{method: "DELETE", path: "/x"},
	{method: "OPTIONS", path: "/x"},
}

// everyUpload sends each kind of request body.
var everyUpload = []ask{
	{method: "PUT", path: "/x", body: "data"},
	{method: "PUT", path: "/x", size: 5_000_000},
	{method: "PUT", path: "/x", size: 5_000_000, chunked: true},
	{method: "PUT", path: "/x", body: "data", header: []string{"Expect", "100-continue"}},
	{method: "PUT", path: "/x", size: 5_000_000, header: []string{"Expect", "100-continue"}},
	{method: "POST", path: "/x", body: "data", trailer: "abc"},
	{method: "POST", path: "/x?status=500", body: "data"},
	{method: "GET", path: "/x", body: "a body"},
	{method: "POST", path: "/x"},
}

// overHTTP2 returns the requests as they are made over HTTP/2.
func overHTTP2(asks []ask) []ask {
	var out []ask
	for _, a := range asks {
		a.h2 = true
		var header []string
		for i := 0; i+1 < len(a.header); i += 2 {
			// HTTP/2 has no hops, and Go's client sends no Expect over it.
			if a.header[i] != "Connection" && a.header[i] != "Expect" {
				header = append(header, a.header[i], a.header[i+1])
			}
		}
		a.header = header
		out = append(out, a)
	}
	return out
}

// anotherClient asks as somebody else, and then as before: to a server that
// knows clients by their connections, none may go over the other's.
var anotherClient = []ask{{}, {header: []string{"X-Client-Ip", "10.0.0.7"}}, {}}

func both(asks ...[]ask) []ask {
	var out []ask
	for _, a := range asks {
		out = append(out, a...)
	}
	return out
}

var plainScenarios = []scenario{
	{name: "every kind of answer", to: "{$A}", asks: everyAnswer},
	{name: "every kind of answer over HTTP/2", to: "{$A}", asks: overHTTP2(everyAnswer)},
	{name: "uploads", to: "{$A}", asks: everyUpload},
	{name: "uploads over HTTP/2", to: "{$A}", asks: overHTTP2(everyUpload)},
	{name: "buffers", to: "{$A}", options: "request_buffers 4KiB\nresponse_buffers 4KiB", asks: both(everyUpload, everyAnswer)},
	{name: "unlimited buffers", to: "{$A}", options: "request_buffers unlimited\nresponse_buffers unlimited", asks: both(everyUpload, everyAnswer)},
	{name: "flushing at once", to: "{$A}", options: "flush_interval -1\nstream_buffer_size 1KiB", asks: everyAnswer},
	{
		name: "a body over the limit, buffered", to: "{$A}", options: "request_buffers unlimited", around: "request_body {\nmax_size 10\n}",
		asks: []ask{{method: "POST", body: "abcdefghijklm"}, {method: "POST", body: "abcdefghijklm", chunked: true}, {method: "POST", body: "abc"}},
	},
	{
		name: "a body over the limit", to: "{$A}", around: "request_body {\nmax_size 10\n}",
		asks: []ask{{method: "POST", body: "abc"}, {method: "POST", body: "abcdefghij", chunked: true}},
	},
	{name: "a server that hangs up", to: "{$A}", asks: []ask{{path: "/nothing"}, {path: "/x"}}},
	{name: "a dead upstream", to: "{$DEAD}", asks: []ask{{}, {method: "PUT", body: "data"}}},
	{
		name: "a dead upstream and an error route", to: "{$DEAD}", around: "handle_errors {\nrespond \"sorry {err.status_code}\"\n}",
		asks: []ask{{}, {method: "HEAD"}},
	},
	{name: "coding in front", to: "{$A}", around: "encode gzip", asks: []ask{
		{path: "/large", header: []string{"Accept-Encoding", "gzip"}},
		{path: "/gzip", header: []string{"Accept-Encoding", "gzip"}},
		{path: "/events", header: []string{"Accept-Encoding", "gzip"}},
	}},
}

var transportScenarios = []scenario{
	{name: "an https upstream", to: "https://{$TLS}", inner: "http {\ntls_insecure_skip_verify\n}", asks: both(everyAnswer, everyUpload)},
	{name: "an https upstream over HTTP/2", to: "https://{$TLS2}", inner: "http {\ntls_insecure_skip_verify\n}", asks: both(everyAnswer, everyUpload)},
	{name: "HTTP/2 on both sides", to: "https://{$TLS2}", inner: "http {\ntls_insecure_skip_verify\n}", asks: overHTTP2(both(everyAnswer, everyUpload))},
	{
		name: "an https upstream that is not trusted", to: "https://{$TLS}",
		asks: []ask{{}, {method: "PUT", body: "data"}},
	},
	{
		name: "a server name from the request", to: "https://{$TLS}", inner: "http {\ntls_insecure_skip_verify\ntls_server_name {http.request.header.X-Name}\n}",
		asks: []ask{{header: []string{"X-Name", "name.test"}}},
	},
	{name: "an h2c upstream", to: "h2c://{$H2C}", asks: both(everyAnswer, everyUpload)},
	{name: "h2c by the transport's option", to: "{$H2C}", inner: "http {\nversions h2c\n}", asks: overHTTP2(both(everyAnswer, everyUpload))},
	{name: "PROXY protocol, version 1", to: "{$PROXY}", inner: "http {\nproxy_protocol v1\n}", asks: both(everyUpload, anotherClient)},
	{name: "PROXY protocol, version 2", to: "{$PROXY}", inner: "http {\nproxy_protocol v2\n}", asks: both(everyUpload, anotherClient)},
	{name: "PROXY protocol over h2c", to: "h2c://{$PROXY}", inner: "http {\nproxy_protocol v2\n}", asks: both(everyUpload, anotherClient)},
	{name: "a unix socket", to: "unix/{$UNIX}", asks: both(everyAnswer, everyUpload)},
	{name: "options of the http transport", to: "{$A}", inner: "http {\ncompression off\nkeepalive off\nmax_conns_per_host 4\nread_buffer 8KiB\nresponse_header_timeout 1m\n}", asks: everyAnswer},
	{name: "requests byte for byte", to: "{$RAW}", options: "header_up X-Add-Header 1", asks: []ask{
		{path: "/%7e//a/../b?%zz", header: []string{"X-oDD", "1", "Accept-Encoding", "br"}},
		{header: []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Unknown", "1"}},
		{method: "PURGE", path: "/x"},
	}},
	{
		name: "FastCGI", to: "{$FCGI}", inner: "fastcgi {\nroot /srv\nsplit .php\n}",
		asks: both(everyUpload, []ask{{path: "/a.php/info?q=1"}, {path: "/cookies"}, {path: "/x?status=404"}, {path: "/empty"}, {path: "/large"}, {method: "HEAD", path: "/x"}}),
	},
	{
		name: "FastCGI with a buffered body", to: "{$FCGI}", options: "request_buffers 8MiB", inner: "fastcgi {\nroot /srv\n}",
		asks: everyUpload,
	},
	{
		name: "dial addresses from the request", to: "{http.request.header.X-Up}",
		asks: []ask{
			{header: []string{"X-Up", "{$A}"}},
			{header: []string{"X-Up", "{$B}"}},
			{header: []string{"X-Up", "unix/{$UNIX}"}},
			{header: []string{"X-Up", "{$DEAD}"}},
			{header: []string{"X-Up", "no:such:address"}},
			{},
		},
	},
}

var balancedScenarios = []scenario{
	{name: "round robin", to: "{$A} {$B}", policy: "round_robin", asks: []ask{{}, {}, {}, {}, {}}},
	{name: "weighted round robin", to: "{$A} {$B}", policy: "weighted_round_robin 2 1", asks: []ask{{}, {}, {}, {}, {}, {}, {}}},
	{name: "the first", to: "{$A} {$B}", policy: "first", asks: []ask{{}, {}}},
	{name: "by header", to: "{$A} {$B}", policy: "header X-Key", asks: []ask{
		{header: []string{"X-Key", "a"}}, {header: []string{"X-Key", "b"}}, {header: []string{"X-Key", "c"}}, {header: []string{"X-Key", "d"}},
	}},
	{name: "by cookie", to: "{$A}", policy: "cookie lb secret", asks: []ask{{}, {header: []string{"Cookie", "lb=x"}}}},
	{name: "by URI", to: "{$A} {$B}", policy: "uri_hash", asks: []ask{{path: "/a"}, {path: "/b"}, {path: "/c"}, {path: "/d"}}},
	{name: "by query", to: "{$A} {$B}", policy: "query k", asks: []ask{{path: "/?k=a"}, {path: "/?k=b"}, {path: "/?k=c"}}},
	{name: "by client", to: "{$A} {$B}", policy: "ip_hash", asks: []ask{{}, {}}},
	{
		name: "a dial error, retried", to: "{$DEAD} {$A}", policy: "first", options: "lb_retries 1\nfail_duration 1m",
		asks: []ask{{method: "PUT", path: "/x", size: 5_000_000}, {method: "PUT", path: "/x", size: 20_000}, {}},
	},
	{
		name: "a dial error, retried from a buffer", to: "{$DEAD} {$A}", policy: "round_robin", options: "lb_retries 2\nrequest_buffers 1MiB",
		asks: []ask{{method: "PUT", path: "/x", size: 20_000}, {method: "PUT", path: "/x", size: 20_000, chunked: true}, {}},
	},
	{
		name: "a status, retried", to: "{$A} {$B}", policy: "round_robin",
		options: "lb_retries 1\nlb_retry_match {\nexpression `{rp.status_code} in [502, 503] && {rp.header.X-Server} == \"A\"`\n}",
		asks:    []ask{{path: "/x?status=503"}, {path: "/x?status=503"}, {path: "/x?status=404"}},
	},
	{
		name: "a header, retried", to: "{$A} {$B}", policy: "round_robin", options: "lb_retries 1\nlb_retry_match {\nexpression `{rp.header.X-Server} == \"A\"`\n}",
		asks: []ask{{}, {}, {path: "/large"}, {path: "/chunked"}},
	},
	{
		name: "a path and a status, retried", to: "{$A} {$B}", policy: "round_robin", options: "lb_retries 1\nlb_retry_match {\nexpression `path('/retry*') && {rp.status_code} in [502, 503]`\n}",
		asks: []ask{{path: "/retry?status=502"}, {path: "/other?status=502"}},
	},
	{
		name: "a transport error, retried", to: "{$A} {$B}", policy: "round_robin", options: "lb_retries 1\nlb_retry_match {\nexpression `{rp.is_transport_error} || {rp.status_code} in [502, 503]`\n}",
		asks: []ask{{path: "/nothing"}, {path: "/x?status=502"}, {}},
	},
	{name: "upstreams from DNS", to: "", options: "dynamic a {\nname localhost\nport {$A_PORT}\nversions ipv4\n}", asks: both(everyUpload, []ask{{path: "/large"}})},
	{name: "services from DNS", to: "", options: "dynamic srv a.test {\nresolvers {$DNS}\n}", inner: "http {\nresolvers {$DNS}\n}", asks: both(everyUpload, []ask{{path: "/large"}})},
	{
		name: "a service that is dead, retried elsewhere", to: "", policy: "first", options: "dynamic multi {\nsrv dead.test {\nresolvers {$DNS}\n}\nsrv b.test {\nresolvers {$DNS}\n}\n}\nlb_retries 1\nfail_duration 1h",
		inner: "http {\nresolvers {$DNS}\n}",
		asks:  []ask{{method: "PUT", path: "/x", size: 20_000}, {}, {}},
	},
	{name: "a service that is not there", to: "{$A}", options: "dynamic srv none.test {\nresolvers {$DNS}\n}", asks: []ask{{}, {}}},
	{name: "an HTTP proxy on the way", to: "{$A}", inner: "http {\nnetwork_proxy url http://{$RAW}\n}", asks: []ask{{path: "/x?a=b"}}},
	{
		name: "an HTTP proxy on the way that is dead, retried", to: "{$A} {$B}", policy: "round_robin", options: "lb_retries 1", inner: "http {\nnetwork_proxy url http://{$DEAD}\n}",
		asks: []ask{{}, {method: "PUT", path: "/x", body: "data"}},
	},
	{name: "by header, else another policy", to: "{$A} {$B}", policy: "header X-Key {\nfallback first\n}", asks: []ask{{}, {header: []string{"X-Key", "b"}}, {}}},
	{name: "the least busy", to: "{$A}", policy: "least_conn", asks: []ask{{}, {}}},
	{name: "two at random", to: "{$A} {$A}", policy: "random_choose 2", asks: []ask{{}, {}}},
	{
		name: "passive health checks", to: "{$A} {$B}", policy: "first", options: "fail_duration 1h\nmax_fails 1\nunhealthy_status 5xx",
		asks: []ask{{}, {path: "/x?status=500"}, {}, {}},
	},
}

var rewritingScenarios = []scenario{
	{
		name: "headers up and down", to: "{$A}",
		options: `
			header_up X-Added "1 {upstream_hostport} {http.reverse_proxy.upstream.host}"
			header_up +X-More 2
			header_up -Cookie
			header_up X-Was (.*)ginal replaced-$1
			header_up Host {upstream_hostport}
			header_down -X-Internal
			header_down X-Down "{http.reverse_proxy.status_code} {http.reverse_proxy.header.X-Server}"
			header_down X-Server ^A$ replaced`,
		asks: both(everyAnswer, []ask{{path: "/x", header: []string{"X-Was", "original", "Cookie", "a=b"}}}),
	},
	{name: "method and rewrite", to: "{$A}", options: "method POST\nrewrite /rewritten?was={path}", asks: []ask{{path: "/x"}, {method: "PUT", path: "/x", body: "data"}}},
	{
		name: "trusted proxies", to: "{$A}", options: "trusted_proxies 127.0.0.1",
		asks: []ask{{header: []string{"X-Forwarded-For", "10.0.0.1", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "a.test"}}},
	},
	{
		name: "responses handled", to: "{$A}",
		options: `
			@missing status 404
			handle_response @missing {
				respond "instead of {rp.status_code}" 200
			}
			@cookies header Set-Cookie *
			handle_response @cookies {
				copy_response_headers {
					include Set-Cookie
				}
				header X-Kept {rp.header.X-Internal}
				copy_response 202
			}
			@broken status 5xx
			replace_status @broken 418`,
		asks: everyAnswer,
	},
	{
		name: "a subrequest", to: "{$A}", around: "forward_auth {$B} {\nuri /auth\ncopy_headers X-Server\n}",
		asks: []ask{{path: "/x"}, {method: "PUT", path: "/x", body: "data"}},
	},
	{
		name: "a named proxy that reports", to: "{$A}", options: "proxy_status_name edge\nverbose_logs",
		asks: []ask{{}, {path: "/partial"}, {path: "/nothing"}, {path: "/x", header: []string{"Incremental", "?1"}}, {path: "/events", header: []string{"Incremental", "?1"}}},
	},
	{
		name: "a buffering proxy and an incremental request", to: "{$A}", options: "request_buffers 1KiB",
		asks: []ask{{method: "POST", path: "/x", body: "data", header: []string{"Incremental", "?1"}}, {path: "/x", header: []string{"Incremental", "?1"}}},
	},
}
