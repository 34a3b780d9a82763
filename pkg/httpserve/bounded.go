package httpserve

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// maxConnections is the maximum number of open connections of a server. Each takes about 10 KB. A kubelet and a few
// scrapers need a handful.
const maxConnections = 256

// limitListener limits the number of open connections of a listener. It always accepts a new connection; if there are
// too many, it closes the oldest one of the client with the most. So a client that keeps opening connections and holds
// them disconnects only itself, and a kubelet still gets its replies.
type limitListener struct {
	net.Listener
	limit int

	mutex sync.Mutex
	// byClient are the open connections of each client, oldest first.
	byClient map[netip.Addr]*list.List
	open     int
}

// LimitListener returns a listener that keeps at most limit connections open.
func LimitListener(listener net.Listener, limit int) net.Listener {
	return &limitListener{Listener: listener, limit: limit, byClient: map[netip.Addr]*list.List{}}
}

// Accept returns the next connection. It may close another one.
func (l *limitListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	limited := &limitedConn{Conn: connection, listener: l, client: ClientAddr(connection.RemoteAddr().String())}
	if surplus := l.add(limited); surplus != nil {
		_ = surplus.Close() // affects only its own client
	}
	return limited, nil
}

// add registers a connection. It returns the connection to close, or nil if the limit is not reached.
func (l *limitListener) add(connection *limitedConn) (surplus *limitedConn) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.open >= l.limit {
		surplus = l.connsOfBusiestClient().Front().Value.(*limitedConn)
	}
	conns := l.byClient[connection.client]
	if conns == nil {
		conns = list.New()
		l.byClient[connection.client] = conns
	}
	connection.entry = conns.PushBack(connection)
	l.open++
	return surplus
}

// connsOfBusiestClient returns the connections of the client that has the most. There are at most as many clients as
// connections.
func (l *limitListener) connsOfBusiestClient() *list.List {
	var largest *list.List
	for _, connections := range l.byClient {
		if largest == nil || connections.Len() > largest.Len() {
			largest = connections
		}
	}
	return largest
}

func (l *limitListener) remove(connection *limitedConn) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	conns := l.byClient[connection.client]
	conns.Remove(connection.entry)
	if conns.Len() == 0 {
		delete(l.byClient, connection.client)
	}
	l.open--
}

// limitedConn removes itself from its listener when it is closed.
type limitedConn struct {
	net.Conn
	listener *limitListener
	client   netip.Addr
	entry    *list.Element
	closing  sync.Once
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	c.closing.Do(func() { c.listener.remove(c) })
	return c.Conn.Close()
}

// ClientAddr returns a client's address from the remote address of its connection or request (http.Request.RemoteAddr).
// It returns the zero address if there is none.
func ClientAddr(remote string) netip.Addr {
	client, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return client.Addr().Unmap()
}
