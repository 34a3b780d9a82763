//go:build linux

package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// scripted is a table whose dumps and deletions fail as the test says.
type scripted struct {
	entries map[model.Family][]entry
	// interruptions is how many dumps are interrupted, after their first entry.
	interruptions int
	deleteErrors  []error // of the deletions, in their order; those behind succeed
	dumps         []model.Family
	deleted       []string // the clients whose flows were asked to be deleted
	afterDelete   func()
}

func (s *scripted) dump(_ context.Context, family model.Family, each func(entry)) error {
	s.dumps = append(s.dumps, family)
	for i, e := range s.entries[family] {
		if i == 1 && len(s.dumps) <= s.interruptions {
			return errInterrupted
		}
		each(e)
	}
	return nil
}

func (s *scripted) delete(_ model.Family, e entry) (bool, error) {
	s.deleted = append(s.deleted, e.client.String())
	if s.afterDelete != nil {
		s.afterDelete()
	}
	if n := len(s.deleted); n <= len(s.deleteErrors) {
		err := s.deleteErrors[n-1]
		return err == nil, err
	}
	return true, nil
}

const (
	service4 = "10.96.0.10:53"
	service6 = "[fd00:96::a]:53"
)

// staleTable is a table with three stale flows in IPv4 and one in IPv6.
func staleTable() *scripted {
	s := &scripted{entries: map[model.Family][]entry{}}
	for _, client := range []string{"10.244.1.11:1", "10.244.1.12:1", "10.244.1.13:1"} {
		s.entries[model.IPv4] = append(s.entries[model.IPv4], entry{protocol: model.UDP, flow: flowOf(client, service4, "10.244.1.1:53")})
	}
	s.entries[model.IPv6] = []entry{{protocol: model.UDP, flow: flowOf("[fd00:244::9]:1", service6, "[fd00:244::1]:53")}}
	return s
}

func TestWhatIsReadAndEndedAndReported(t *testing.T) {
	tcp := frontend(service4)
	tcp.Frontend.Protocol = model.TCP
	four, six := frontend(service4), frontend(service6)
	for name, c := range map[string]struct {
		flows         []selection.Flows
		interruptions int
		deleteErrors  []error
		wantDumps     int
		wantDeletes   int
		wantEnded     int
		wantError     string // a part of it; empty: none
	}{
		"nothing changed: nothing is read":         {nil, 0, nil, 0, 0, 0, ""},
		"no frontend of UDP: nothing is read":      {list(tcp), 0, nil, 0, 0, 0, ""},
		"one family changed: the other stays shut": {list(six), 0, nil, 1, 1, 1, ""},
		"many frontends, one dump a family":        {list(four, six, frontend("10.96.0.11:53"), tcp), 0, nil, 2, 4, 4, ""},
		"an interrupted dump is begun anew":        {list(four), 4, nil, 5, 3, 3, ""},
		"after five the part that was seen is dealt with, and the error says that it was a part": {
			list(four), 5, nil, 5, 1, 1, "listing the IPv4 UDP flows in conntrack: the table changed too fast to be read",
		},
		"one family's trouble is not the other's": {list(four, six), 5, nil, 6, 2, 2, "listing the IPv4"},
		"a flow that the kernel keeps keeps no other": {
			list(four), 0, []error{unix.EBUSY}, 1, 3, 2,
			"ending the flow UDP from 10.244.1.11 to 10.96.0.10:53, answered by 10.244.1.1:53: device or resource busy",
		},
		"of many such the first is named": {list(four), 0, []error{nil, unix.EBUSY, unix.EBUSY}, 1, 3, 1, "from 10.244.1.12 to"},
		"and the others are counted":      {list(four), 0, []error{nil, unix.EBUSY, unix.EBUSY}, 1, 3, 1, "busy; and 1 more"},
		"any other refusal ends the work in its family": {
			list(four, six), 0, []error{nil, unix.EPERM}, 2, 3, 2, "from 10.244.1.12 to 10.96.0.10:53, answered by 10.244.1.1:53: operation not",
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := staleTable()
			table.interruptions, table.deleteErrors = c.interruptions, c.deleteErrors
			connection := &Conn{table: table}

			ended, err := connection.Forget(t.Context(), c.flows, clusterScope)

			if ended != c.wantEnded {
				t.Errorf("%d flows are said to have ended, want %d", ended, c.wantEnded)
			}
			if len(table.dumps) != c.wantDumps {
				t.Errorf("there were the dumps %v, want %d", table.dumps, c.wantDumps)
			}
			if len(table.deleted) != c.wantDeletes {
				t.Errorf("the flows of %v were asked to be deleted, want %d", table.deleted, c.wantDeletes)
			}
			switch {
			case c.wantError == "" && err != nil:
				t.Errorf("unexpected error: %v", err)
			case c.wantError != "" && (err == nil || !strings.Contains(err.Error(), c.wantError)):
				t.Errorf("error %v, want one with %q", err, c.wantError)
			}
		})
	}
}

// TestAKernelThatDoesNotAnswerEndsNothing: the flow stays that it was asked about, and those whose fate does not depend
// on it end. It is asked once.
func TestAKernelThatDoesNotAnswerEndsNothing(t *testing.T) {
	table, asked := staleTable(), 0
	for _, client := range []string{"203.0.113.7:1", "203.0.113.8:1"} {
		flow := flowOf(client, vip, "10.244.2.1:53")
		table.entries[model.IPv4] = append(table.entries[model.IPv4], entry{protocol: model.UDP, flow: flow})
	}
	connection := &Conn{table: table, isLocal: func(netip.Addr) (bool, error) { asked++; return false, unix.ENOBUFS }}
	flows := list(frontend(service4), split(vip, permitted{endpointA, endpointB}, permitted{endpointA}))

	ended, err := connection.Forget(t.Context(), flows, clusterScope)

	if ended != 3 || !errors.Is(err, unix.ENOBUFS) || asked != 1 {
		t.Errorf("ended %d flows, %v, asked %d times; want the 3 of the other frontend, the kernel's error, and one question", ended, err, asked)
	}
}

func TestForgettingStopsWhenItsContextEnds(t *testing.T) {
	table := staleTable()
	ctx, cancel := context.WithCancel(t.Context())
	table.afterDelete = cancel

	ended, err := (&Conn{table: table}).Forget(ctx, list(frontend(service4)), clusterScope)

	if ended != 1 || !errors.Is(err, context.Canceled) || len(table.deleted) != 1 {
		t.Errorf("ended %d flows, asked for %d, error %v; want one and the context's error", ended, len(table.deleted), err)
	}
	if want := "ending the last 2 of 3 stale IPv4 UDP flows"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one with %q", err, want)
	}
}

func TestWhatIsMissingIsSaidInASentence(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"no privilege": {unix.EPERM, "run as root"},
		"no module":    {unix.EINVAL, "load the module nf_conntrack_netlink"},
		"no netlink":   {unix.EPROTONOSUPPORT, "load the module nf_conntrack_netlink"},
		"anything":     {unix.ENOMEM, "talking to conntrack: cannot allocate memory"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := missing(c.err); !errors.Is(got, c.err) || !strings.Contains(got.Error(), c.want) {
				t.Errorf("the error is %q, want one with %q that wraps %v", got, c.want, c.err)
			}
		})
	}
}
