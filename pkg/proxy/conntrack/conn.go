//go:build linux

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// dumpAttempts is how often a dump is begun before an interrupted one has to do.
const dumpAttempts = 5

// The sentences for what is missing. Each says what to do.
var (
	errPrivilege   = errors.New("ending UDP flows needs root (CAP_NET_ADMIN): run as root")
	errNoConntrack = errors.New("this kernel does not list its conntrack entries: load the module nf_conntrack_netlink, or use a kernel " +
		"built with CONFIG_NF_CT_NETLINK")
)

// errInterrupted says that a dump may lack entries that were there all the time.
var errInterrupted = errors.New("the table changed too fast to be read")

// table is conntrack's table.
type table interface {
	dump(ctx context.Context, family model.Family, each func(entry)) error
	delete(family model.Family, e entry) (deleted bool, err error)
}

// Conn is a connection to conntrack in the network namespace in which it was dialled. It may be used by several
// goroutines.
type Conn struct {
	socket *socket
	routes *interfaces.Routes

	forgetting sync.Mutex // guards what follows
	table      table
	isLocal    selection.IsLocal
}

// Dial connects to conntrack. If something is missing for that, the error is one sentence that says what, and what to
// do.
func Dial() (*Conn, error) {
	s, err := openSocket()
	if err != nil {
		return nil, missing(err)
	}
	if err := s.try(); err != nil {
		s.close()
		return nil, missing(err)
	}
	routes, err := interfaces.OpenRoutes()
	if err != nil {
		s.close()
		return nil, err
	}
	return &Conn{socket: s, routes: routes, table: s, isLocal: routes.IsLocal}, nil
}

// missing turns the kernel's error at first contact into a sentence that says what is missing.
func missing(err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w (%w)", errPrivilege, err)
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w (%w)", errNoConntrack, err)
	}
	return fmt.Errorf("talking to conntrack: %w", err)
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.forgetting.Lock()
	defer c.forgetting.Unlock()
	c.socket.close()
	c.routes.Close()
	return nil
}

// Forget ends the UDP flows of the given frontends whose endpoint may not answer them, and returns how many it ended.
// Their next packet is the first of a new flow. Frontends of other protocols are passed over. Conntrack is read
// only if there is one of UDP.
//
// The rules must have changed before. A frontend that is gone comes without endpoints that may answer. A node port comes
// with its Service's endpoints, those that just left among them: at addresses that do not serve it, their flows alone
// end. It should come together with the frontends that have an address of their own, the node's, and the same port number:
// they own the flows to that address, which would otherwise be judged as the node port's.
//
// After an error some flows may be left. Calling again with the same flows ends them, and does no harm to those that
// began meanwhile.
func (c *Conn) Forget(ctx context.Context, flows []selection.Flows, scope selection.Scope) (ended int, err error) {
	c.forgetting.Lock()
	defer c.forgetting.Unlock()
	v := newVerdicts(flows, scope, askedOnce(c.isLocal))
	var failures []error
	for _, family := range model.Families {
		if !v.families[family] {
			continue
		}
		stale, err := c.stale(ctx, family, v)
		if err != nil {
			failures = append(failures, fmt.Errorf("listing the %s UDP flows in conntrack: %w", family, err))
		}
		deleted, err := c.deleteAll(ctx, family, stale)
		if err != nil {
			failures = append(failures, err)
		}
		ended += deleted
	}
	return ended, errors.Join(failures...)
}

// stale returns the stale entries of a family. With an error they may not be all.
func (c *Conn) stale(ctx context.Context, family model.Family, v verdicts) (stale []entry, err error) {
	var unknown error
	for range dumpAttempts {
		stale = nil
		err = c.table.dump(ctx, family, func(e entry) {
			isStale, err := v.isStale(e.flow)
			if err != nil {
				unknown = err
			}
			if isStale {
				stale = append(stale, e)
			}
		})
		if !errors.Is(err, errInterrupted) {
			break
		}
	}
	return stale, errors.Join(err, unknown)
}

// askedOnce asks about each address once, so that a look costs no more than one question for each address in the table.
// It asks nothing more after an error: each further question might wait as long.
func askedOnce(isLocal selection.IsLocal) selection.IsLocal {
	answers := map[netip.Addr]bool{}
	var failed error
	return func(addr netip.Addr) (bool, error) {
		answer, known := answers[addr]
		if known || failed != nil {
			return answer, failed
		}
		answer, failed = isLocal(addr)
		answers[addr] = answer
		return answer, failed
	}
}

// deleteAll deletes entries and returns how many were there. An entry that the kernel will not let go, because a
// flowtable forwards the flow (EBUSY, IPS_OFFLOAD), keeps no other from being deleted; any other error ends the work.
func (c *Conn) deleteAll(ctx context.Context, family model.Family, entries []entry) (deleted int, err error) {
	var busy []error
	for i, e := range entries {
		if err := ctx.Err(); err != nil {
			return deleted, fmt.Errorf("ending the last %d of %d stale %s UDP flows: %w", len(entries)-i, len(entries), family, err)
		}
		done, err := c.table.delete(family, e)
		switch {
		case errors.Is(err, unix.EBUSY):
			busy = append(busy, fmt.Errorf("ending the flow %s: %w", e, err))
		case err != nil:
			return deleted, errors.Join(append(busy, fmt.Errorf("ending the flow %s: %w", e, err))...)
		case done:
			deleted++
		}
	}
	if len(busy) > 1 {
		return deleted, fmt.Errorf("%w; and %d more", busy[0], len(busy)-1)
	}
	return deleted, errors.Join(busy...)
}
