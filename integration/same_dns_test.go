package integration_test

import (
	"net"
	"strconv"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// host is where all services are.
const host = "host.test."

// serveNames answers questions about services, named after the servers, and
// about their host. It ends with the test.
func (b *backstage) serveNames(t *testing.T) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	b.words["DNS"] = conn.LocalAddr().String()
	services := map[string]string{"a.test.": b.words["A"], "b.test.": b.words["B"], "dead.test.": b.words["DEAD"]}
	go func() {
		packet := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			if answer := service(packet[:n], services); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
}

// service answers one question; nil: it is none.
func service(question []byte, services map[string]string) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	q := m.Questions[0]
	header := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}
	_, port, err := net.SplitHostPort(services[q.Name.String()])
	number, _ := strconv.ParseUint(port, 10, 16)
	switch {
	case q.Name.String() == host && q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
	case q.Name.String() == host: // has nothing else
	case err == nil && q.Type == dnsmessage.TypeSRV:
		to := &dnsmessage.SRVResource{Weight: 1, Port: uint16(number), Target: dnsmessage.MustNewName(host)}
		m.Answers = []dnsmessage.Resource{{Header: header, Body: to}}
	default:
		m.RCode = dnsmessage.RCodeNameError
	}
	answer, err := m.Pack()
	if err != nil {
		return nil
	}
	return answer
}
