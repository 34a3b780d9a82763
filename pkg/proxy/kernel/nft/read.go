//go:build linux

package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// Reader reads our tables in the network namespace in which it was opened, and changes nothing. It can read them
// regardless of their owner. It may be used by several goroutines.
type Reader struct {
	owned bool // set if the tables should be owned, like those of the Conn that embeds the Reader

	queryMutex sync.Mutex // guards the following fields
	socket     *socket
	sequence   uint32
}

// OpenReader connects to nf_tables only for reading. It needs CAP_NET_ADMIN, as writing does.
func OpenReader() (*Reader, error) {
	s, err := openQuerySocket()
	if err != nil {
		return nil, err
	}
	return &Reader{socket: s}, nil
}

// Close closes the connection.
func (r *Reader) Close() error {
	if err := r.socket.conn.Close(); err != nil {
		return fmt.Errorf("close connection to nf_tables: %w", err)
	}
	return nil
}

// errInterrupted means that a dump may be inconsistent, because the ruleset changed during it.
var errInterrupted = errors.New("changed while being read")

// reply is the part of the kernel's reply to one request that has been read so far.
type reply struct {
	each        func(message) error
	failures    []error
	interrupted bool
}

// err returns the error of the reply. An interrupted reply may be inconsistent, so an interruption hides any other
// failure.
func (r *reply) err() error {
	if r.interrupted {
		return errInterrupted
	}
	return errors.Join(r.failures...)
}

// add passes a message to each, unless something failed already, and reports whether the message ends the reply.
func (r *reply) add(m message) (ended bool) {
	if m.flags&unix.NLM_F_DUMP_INTR != 0 {
		r.interrupted = true
	}
	if m.kind == unix.NLMSG_DONE || m.kind == unix.NLMSG_ERROR {
		r.failures = append(r.failures, errnoOf(m))
		return true
	}
	if len(r.failures) == 0 {
		if err := r.each(m); err != nil {
			r.failures = append(r.failures, err)
		}
	}
	return false
}

// query sends the one request that write appends, and passes every message of the reply to each.
func (r *Reader) query(ctx context.Context, write func(*messages), each func(message) error) error {
	r.queryMutex.Lock()
	defer r.queryMutex.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	r.sequence++
	request := &messages{sequence: r.sequence}
	write(request)
	if err := r.socket.send(request.b); err != nil {
		return err
	}
	got := reply{each: each}
	for {
		// The reply is always read to its end, so that the next query does not read its rest.
		b, err := r.socket.reply(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		for m, err := range parseMessages(b) {
			if err != nil {
				return err
			}
			if m.sequence == r.sequence && got.add(m) {
				return got.err()
			}
		}
	}
}

// errnoOf returns the error that ends a reply, nil if the reply ends without one.
func errnoOf(m message) error {
	if len(m.body) < 4 {
		return nil
	}
	if errno := -int32(binary.NativeEndian.Uint32(m.body)); errno > 0 {
		return unix.Errno(errno)
	}
	return nil
}

// generation returns the number of the kernel's ruleset, which every transaction that changes something increments.
func (r *Reader) generation(ctx context.Context) (generation uint32, err error) {
	err = r.query(ctx, func(m *messages) {
		m.beginNFT(unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, unix.AF_UNSPEC)
		m.end()
	}, func(m message) error {
		_, body := m.family()
		generation, _ = numberOf(body, unix.NFTA_GEN_ID)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read generation of the ruleset: %w", err)
	}
	return generation, nil
}

// Objects returns the contents of our table of a family: the names of its chains, sets and counters, sorted, and the
// elements of those sets that ruleset.RestoredSet returns.
func (r *Reader) Objects(ctx context.Context, family model.Family) (ruleset.Objects, error) {
	state, err := r.table(ctx, family)
	if err != nil || !state.exists {
		return ruleset.Objects{}, err
	}
	objects := ruleset.Objects{Table: true, NeedsRecreate: !state.canUpdate(r.owned)}
	objects.Chains, err = r.names(ctx, family, unix.NFT_MSG_GETCHAIN, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME)
	if err != nil {
		return ruleset.Objects{}, fmt.Errorf("list chains of table %s: %w", tableText(family), err)
	}
	objects.Sets, err = r.names(ctx, family, unix.NFT_MSG_GETSET, unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME)
	if err != nil {
		return ruleset.Objects{}, fmt.Errorf("list sets of table %s: %w", tableText(family), err)
	}
	objects.Counters, err = r.names(ctx, family, unix.NFT_MSG_GETOBJ, unix.NFTA_OBJ_TABLE, unix.NFTA_OBJ_NAME)
	if err != nil {
		return ruleset.Objects{}, fmt.Errorf("list counters of table %s: %w", tableText(family), err)
	}
	for _, name := range objects.Sets {
		set, restored := ruleset.RestoredSet(name)
		if !restored {
			continue
		}
		elements, err := r.Elements(ctx, family, set)
		if errors.Is(err, errUnreadable) {
			continue // the kernel will reject its change into ours, and then the table is recreated
		}
		// If the ruleset keeps changing, the last dump is used: it is nearly always complete.
		if err != nil && !errors.Is(err, errInterrupted) {
			return ruleset.Objects{}, err
		}
		objects.Add(name, elements)
	}
	return objects, nil
}

// names lists the objects of a kind in our table of a family. It requests only those; the kernel filters sets, and
// dumps the chains of all tables.
//
// Any transaction interrupts a dump, even one on another table. If a large ruleset keeps changing, every attempt may be
// interrupted: then the results of all are merged. Our own tables do not change meanwhile, so they are nearly always
// complete; a missing object stays in the kernel, and the next full sync finds it.
func (r *Reader) names(ctx context.Context, family model.Family, kind, tableAttribute, nameAttribute uint16) ([]string, error) {
	var seen []string
	names, err := retry(func() ([]string, error) {
		var names []string
		err := r.query(ctx, func(m *messages) {
			m.beginNFT(kind, unix.NLM_F_DUMP, nfproto(family))
			m.text(tableAttribute, ruleset.TableName)
			m.end()
		}, func(m message) error {
			dumpedFamily, body := m.family()
			inOwnTable := dumpedFamily == nfproto(family) && textOf(body, tableAttribute) == ruleset.TableName
			if text := textOf(body, nameAttribute); inOwnTable && isUserNamed(text) && !isOtherObject(kind, body) {
				names = append(names, text)
			}
			return nil
		})
		seen = append(seen, names...)
		return names, err
	})
	if errors.Is(err, errInterrupted) {
		names, err = seen, nil
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// isUserNamed excludes anonymous sets and chains, which the kernel names, and deletes with their rule.
func isUserNamed(text string) bool { return text != "" && !strings.HasPrefix(text, "__") }

// isOtherObject reports whether a dumped object is a quota or the like, which the kernel dumps with the counters.
func isOtherObject(kind uint16, body []byte) bool {
	object, _ := numberOf(body, unix.NFTA_OBJ_TYPE)
	return kind == unix.NFT_MSG_GETOBJ && object != unix.NFT_OBJECT_COUNTER
}
