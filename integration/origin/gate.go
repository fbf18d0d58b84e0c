package origin

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// reopenFor is how long the gate tries to get its port back.
const reopenFor = 5 * time.Second

// gate is the origin's listener. It can be shut and opened again on the same
// port, or swallow connections without ever answering them.
type gate struct {
	srv  *http.Server
	addr string

	mu         sync.Mutex
	ln         net.Listener // nil while refusing
	swallowing bool
	conns      map[*gateConn]struct{}
}

// listen opens a gate for srv. Its address must be one that nobody is given while
// it refuses.
func listen(srv *http.Server, addr string) (*gate, error) {
	g := &gate{srv: srv, addr: addr, conns: make(map[*gateConn]struct{})}
	if err := g.open(); err != nil {
		return nil, err
	}
	return g, nil
}

// open makes the gate let connections through. Another process may have taken
// the port meanwhile, so it is tried for a while.
func (g *gate) open() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.swallowing {
		g.swallowing = false
		g.closeConns()
	}
	if g.ln != nil {
		return nil
	}
	ln, err := net.Listen("tcp", g.addr)
	for end := time.Now().Add(reopenFor); err != nil && time.Now().Before(end); {
		<-time.After(10 * time.Millisecond)
		ln, err = net.Listen("tcp", g.addr)
	}
	if err != nil {
		return err
	}
	g.ln, g.addr = ln, ln.Addr().String()
	go func() { _ = g.srv.Serve(&gateListener{Listener: ln, g: g}) }()
	return nil
}

// refuse closes the listener and all connections.
func (g *gate) refuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ln != nil {
		_ = g.ln.Close()
		g.ln = nil
	}
	g.closeConns()
}

// swallow closes all connections and never answers new ones.
func (g *gate) swallow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.swallowing = true
	g.closeConns()
}

// shut ends the gate for good.
func (g *gate) shut() { g.refuse() }

// closeConns closes every connection. The lock must be held.
func (g *gate) closeConns() {
	for c := range g.conns {
		_ = c.TCPConn.Close()
		delete(g.conns, c)
	}
}

// gateListener is what the server sees of one opening of the gate.
type gateListener struct {
	net.Listener
	g *gate
}

// Accept returns the next connection that may be answered.
func (l *gateListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		gc := &gateConn{TCPConn: c.(*net.TCPConn), g: l.g}
		l.g.mu.Lock()
		l.g.conns[gc] = struct{}{}
		swallowing := l.g.swallowing
		l.g.mu.Unlock()
		if !swallowing {
			return gc, nil
		}
	}
}

// gateConn is a connection that the gate can close.
type gateConn struct {
	*net.TCPConn
	g *gate
}

// Close closes the connection and forgets it.
func (c *gateConn) Close() error {
	c.g.mu.Lock()
	delete(c.g.conns, c)
	c.g.mu.Unlock()
	return c.TCPConn.Close()
}
