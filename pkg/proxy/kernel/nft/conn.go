//go:build linux

package nft

import (
	"errors"
	"fmt"
	"sync"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Options configures a connection.
type Options struct {
	// Owned requests tables that no other process can change, if the kernel can keep such a table without its owner (6.9
	// and newer). See Conn.Owned.
	Owned bool
}

// Conn is a connection to nf_tables in the network namespace in which it was opened. It may be used by several
// goroutines.
//
// Its sockets stay open until Close: closing one after a transaction that deleted something waits for the kernel's
// grace period, 13 to 16 ms. Reading, writing and watching have one socket each, because a shared one deadlocks.
type Conn struct {
	*Reader  // nil until it is open
	families []model.Family

	writing  sync.Mutex // guards the following fields
	writer   *socket
	sequence uint32 // of the next batch
	buffer   []byte

	watcher *watcher // nil if the tables are owned
}

// Dial connects to nf_tables. If a prerequisite is missing, the error names it, and the remedy, in one sentence.
//
// Unless the tables are owned, the kernel queues other processes' changes to them from then on, for Watch to report.
func Dial(options Options) (*Conn, error) {
	writer, err := openWriter()
	if err != nil {
		return nil, err
	}
	c := &Conn{writer: writer, sequence: 1}
	if err := c.open(options); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Conn) open(options Options) (err error) {
	if c.families, err = familiesOf(c.writer); err != nil {
		return err
	}
	if c.Reader, err = OpenReader(); err != nil {
		return err
	}
	if options.Owned {
		if c.owned, err = canOwn(c.writer); err != nil {
			return err
		}
	}
	if !c.owned {
		c.watcher, err = openWatcher(c.writer.conn.PID())
	}
	return err
}

// Owned reports whether the tables that this connection adds belong to it: the kernel lets no other process change them
// while the connection is open, and keeps them when it closes, for the next one to adopt.
func (c *Conn) Owned() bool { return c.owned }

// Families returns the families in which this kernel has tables: IPv4, and IPv6 unless the kernel was built without
// it.
func (c *Conn) Families() []model.Family { return c.families }

// Close closes the connection. The tables stay.
func (c *Conn) Close() error {
	var failures []error
	for _, s := range c.sockets() {
		failures = append(failures, s.conn.Close())
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("close connection to nf_tables: %w", err)
	}
	return nil
}

func (c *Conn) sockets() []*socket {
	sockets := []*socket{c.writer}
	if c.Reader != nil {
		sockets = append(sockets, c.socket)
	}
	if c.watcher != nil {
		sockets = append(sockets, c.watcher.socket)
	}
	return sockets
}
