package httpserve

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// maxConnections is the maximum number of open connections of a server. Each takes some 10 KB. A kubelet and a few
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

// Bounded returns a listener that keeps at most limit connections open.
func Bounded(listener net.Listener, limit int) net.Listener {
	return &limitListener{Listener: listener, limit: limit, byClient: map[netip.Addr]*list.List{}}
}

// Accept returns the next connection. It may close another one.
func (b *limitListener) Accept() (net.Conn, error) {
	connection, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	counted := &countedConnection{Conn: connection, listener: b, client: ClientAddr(connection.RemoteAddr().String())}
	if surplus := b.add(counted); surplus != nil {
		_ = surplus.Close() // affects only its own client
	}
	return counted, nil
}

// add registers a connection. It returns the connection to close, or nil if the limit is not reached.
func (b *limitListener) add(connection *countedConnection) (surplus *countedConnection) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.open >= b.limit {
		surplus = b.busiestClient().Front().Value.(*countedConnection)
	}
	mine := b.byClient[connection.client]
	if mine == nil {
		mine = list.New()
		b.byClient[connection.client] = mine
	}
	connection.entry = mine.PushBack(connection)
	b.open++
	return surplus
}

// busiestClient returns the connections of the client with the most. There are at most as many clients as connections.
func (b *limitListener) busiestClient() *list.List {
	var largest *list.List
	for _, connections := range b.byClient {
		if largest == nil || connections.Len() > largest.Len() {
			largest = connections
		}
	}
	return largest
}

func (b *limitListener) remove(connection *countedConnection) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	mine := b.byClient[connection.client]
	mine.Remove(connection.entry)
	if mine.Len() == 0 {
		delete(b.byClient, connection.client)
	}
	b.open--
}

// countedConnection removes itself from its listener's count when it is closed.
type countedConnection struct {
	net.Conn
	listener *limitListener
	client   netip.Addr
	entry    *list.Element
	closing  sync.Once
}

// Close closes the connection.
func (c *countedConnection) Close() error {
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
