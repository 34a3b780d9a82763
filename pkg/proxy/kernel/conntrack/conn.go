//go:build linux

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Table is a connection table: the kernel's (Conn), the kernel's with shared dumps (DumpScheduler), or a fake in tests.
type Table interface {
	// Dump passes the entries that match a filter to each, until each returns false. Entries that are added or removed
	// during the dump may be among them or not. The entry is valid only until each returns. The error is ErrTruncated if
	// each returned false, and ErrInterrupted if other entries may be missing. took is how long reading the table took,
	// without any wait before.
	Dump(ctx context.Context, filter Filter, each func(*Entry) bool) (took time.Duration, err error)
	// Get reads an entry again. It reports false if the entry was removed, even if another one has replaced it.
	Get(entry *Entry) (now Entry, isThere bool, err error)
	// Delete deletes an entry, but never another one that has replaced it. It reports whether the entry still existed. The
	// entry may have changed since it was read.
	Delete(entry *Entry) (deleted bool, err error)
	// DeleteUnreplied deletes those of the given translated TCP and SCTP entries that are still unreplied, and returns
	// them. The kernel itself checks the status as it deletes each. If the kernel cannot, the error is
	// ErrNoConditionalDelete, and nothing was deleted.
	DeleteUnreplied(entries []*Entry) (deleted []*Entry, err error)
}

// Errors of a dump.
var (
	ErrTruncated   = errors.New("the caller ended the dump early")
	ErrInterrupted = errors.New("the table kept changing during the dump")
)

// Errors for missing prerequisites. Each text includes the remedy.
var (
	errPrivilege   = errors.New("connection tracking needs root (CAP_NET_ADMIN): run as root")
	errNoConntrack = errors.New("this kernel cannot list conntrack entries: load the module nf_conntrack_netlink, or use a kernel " +
		"built with CONFIG_NF_CT_NETLINK")
)

// msgStatistics is IPCTNL_MSG_CT_GET_STATS.
const msgStatistics = 5

// Conn is a connection to conntrack in the network namespace in which it was opened. It may be used by several
// goroutines.
type Conn struct {
	*sockets

	requestMutex sync.Mutex
	socket       *netlink.Conn // for all but dumps, each of which has its own
	reader       *reader       // of socket

	conditionalDelete conditionalDeleteSupport
}

// replyTimeout is how long a reply may take before it counts as lost: the kernel replies before the sending call
// returns.
const replyTimeout = 30 * time.Second

// Dial connects to conntrack. If a prerequisite is missing, the error names it, and the remedy, in one sentence.
func Dial() (*Conn, error) {
	opener, err := openInCurrentNamespace()
	if err != nil {
		return nil, err
	}
	socket, err := opener.open()
	if err != nil {
		opener.closeAll()
		return nil, explainSetupError(err)
	}
	c := &Conn{sockets: opener, socket: socket}
	if c.reader, err = newReader(socket); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := c.execute(msgStatistics, BothFamilies, nil); err != nil {
		return nil, errors.Join(explainSetupError(err), c.Close())
	}
	return c, nil
}

// explainSetupError turns the kernel's error at first contact into one that names the missing prerequisite.
func explainSetupError(err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w (%w)", errPrivilege, err)
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w (%w)", errNoConntrack, err)
	}
	return fmt.Errorf("connect to conntrack: %w", err)
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.requestMutex.Lock()
	defer c.requestMutex.Unlock()
	c.closeAll()
	if err := c.socket.Close(); err != nil {
		return fmt.Errorf("close connection to conntrack: %w", err)
	}
	return nil
}

// message returns a message to conntrack.
func message(kind int, flags netlink.HeaderFlags, family Families, attributes []byte) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_CTNETLINK<<8 | kind), Flags: netlink.Request | flags},
		Data:   append([]byte{byte(family), nl.NFNETLINK_V0, 0, 0}, attributes...),
	}
}

// execute sends a request to the kernel, and waits until it is done.
func (c *Conn) execute(kind int, family Families, attributes []byte) error {
	return c.request(kind, family, attributes, func([]byte) error { return nil })
}

// request sends a request to the kernel, passes each message of the reply, and waits until it is done.
func (c *Conn) request(kind int, family Families, attributes []byte, each func(message []byte) error) error {
	c.requestMutex.Lock()
	defer c.requestMutex.Unlock()
	if err := c.socket.SetReadDeadline(time.Now().Add(replyTimeout)); err != nil {
		return err
	}
	if _, err := c.socket.Send(message(kind, netlink.Acknowledge, family, attributes)); err != nil {
		return err
	}
	var eachErr error
	for {
		isOver, err := c.reader.read(func(message []byte) (bool, error) {
			eachErr = errors.Join(eachErr, each(message))
			return true, nil // the acknowledgement is still to come
		})
		if isOver {
			return errors.Join(err, eachErr)
		}
	}
}

// Get implements Table.
func (c *Conn) Get(e *Entry) (current Entry, exists bool, err error) {
	key, err := e.key()
	if err != nil {
		return Entry{}, false, fmt.Errorf("encode key of entry %s: %w", e, err)
	}
	err = c.request(nl.IPCTNL_MSG_CT_GET, Only(e.Family()), key, current.parse)
	if errors.Is(err, unix.ENOENT) {
		return Entry{}, false, nil
	}
	return current, err == nil && current.ID == e.ID && current.Original == e.Original, err
}

// Delete implements Table.
func (c *Conn) Delete(e *Entry) (deleted bool, err error) {
	key, err := e.key()
	if err != nil {
		return false, fmt.Errorf("encode key of entry %s: %w", e, err)
	}
	err = c.execute(nl.IPCTNL_MSG_CT_DELETE, Only(e.Family()), key)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// MaxFilteredReplySrcs is the largest number of IPv4 addresses for which the kernel should filter: with more, a walk
// through the table for each takes longer than copying the entries with other reply sources too.
const MaxFilteredReplySrcs = 4

// Dump implements Table. Entries of protocols other than TCP, UDP and SCTP are skipped. The request for each subfilter
// has a socket to itself: closing it is the only way to stop the kernel.
func (c *Conn) Dump(ctx context.Context, filter Filter, each func(*Entry) bool) (took time.Duration, err error) {
	began, isTruncated := time.Now(), false
	filter.Status &= filter.Mask // the kernel would require the other bits, too
	deliver := func(e *Entry) bool {
		if filter.Matches(e) {
			isTruncated = !each(e)
		}
		return !isTruncated
	}
	for _, sub := range filter.subfilters() {
		if err := c.dump(ctx, &filter, sub, deliver); err != nil {
			return time.Since(began), err
		}
		if isTruncated {
			return time.Since(began), ErrTruncated
		}
	}
	return time.Since(began), nil
}

// subfilter is the part of a filter that one request covers.
type subfilter struct {
	family   Families
	replySrc netip.Addr
}

func (f *Filter) subfilters() (subfilters []subfilter) {
	for _, addr := range f.ReplySrcs {
		subfilters = append(subfilters, subfilter{Only(model.FamilyOf(addr)), addr})
	}
	switch {
	case len(f.ReplySrcs) > 0:
		return subfilters
	case f.Protocol != 0 && f.Family == BothFamilies:
		return []subfilter{{family: OnlyIPv4}, {family: OnlyIPv6}}
	}
	return []subfilter{{family: f.Family}}
}

// dump reads the entries that one subfilter covers.
func (c *Conn) dump(ctx context.Context, filter *Filter, sub subfilter, each func(*Entry) bool) error {
	attributes, err := filter.encode(sub.replySrc)
	if err != nil {
		return fmt.Errorf("request conntrack entries: %w", err)
	}
	socket, err := c.acquire()
	if err != nil {
		return fmt.Errorf("open socket to list conntrack: %w", err)
	}
	isDrained := false
	defer func() { c.release(socket, isDrained) }()
	if err := socket.SetReadDeadline(time.Now().Add(replyTimeout)); err != nil {
		return fmt.Errorf("request conntrack entries: %w", err)
	}
	if _, err := socket.Send(message(nl.IPCTNL_MSG_CT_GET, netlink.Dump, sub.family, attributes)); err != nil {
		return fmt.Errorf("request conntrack entries: %w", err)
	}
	r, err := newReader(socket)
	if err != nil {
		return err
	}
	defer r.release()
	var e Entry
	wantsMore := true
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		isOver, err := r.read(func(message []byte) (more bool, err error) {
			if err := e.parse(message); err != nil {
				return true, err
			}
			wantsMore = !e.hasPorts() || each(&e)
			return wantsMore, nil
		})
		isDrained = isOver && err == nil && wantsMore
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EBUSY):
			return ErrInterrupted
		case err != nil || isOver:
			return err
		}
	}
}

func (e *Entry) hasPorts() bool {
	return e.Protocol == model.TCP || e.Protocol == model.UDP || e.Protocol == model.SCTP
}
