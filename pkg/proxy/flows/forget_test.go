//go:build linux

package flows

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// scripted is a table whose dumps and deletions fail as the test says.
type scripted struct {
	conntrack.Table // nobody calls its other methods
	entries         []conntrack.Entry
	// isInterrupted: the dump is, after its first entry.
	isInterrupted bool
	deleteErrors  []error // of the deletions, in their order; those behind succeed
	dumps         []conntrack.Filter
	deleted       []string // the clients whose flows were asked to be deleted
	afterDelete   func()
}

func (s *scripted) Dump(_ context.Context, filter conntrack.Filter, each func(*conntrack.Entry) bool) (time.Duration, error) {
	s.dumps = append(s.dumps, filter)
	given := 0
	for i := range s.entries {
		if given == 1 && s.isInterrupted {
			return 0, conntrack.ErrInterrupted
		}
		if filter.Matches(&s.entries[i]) {
			given++
			each(&s.entries[i])
		}
	}
	return time.Millisecond, nil
}

func (s *scripted) Delete(e *conntrack.Entry) (bool, error) {
	s.deleted = append(s.deleted, e.Client().Addr().String())
	if s.afterDelete != nil {
		s.afterDelete()
	}
	if n := len(s.deleted); n <= len(s.deleteErrors) {
		err := s.deleteErrors[n-1]
		return err == nil, err
	}
	return true, nil
}

func entryOf(client, dialled, answerer string) conntrack.Entry {
	from, to, by := netip.MustParseAddrPort(client), netip.MustParseAddrPort(dialled), netip.MustParseAddrPort(answerer)
	return conntrack.Entry{
		Protocol: model.UDP, Original: conntrack.Tuple{Source: from, Destination: to}, Reply: conntrack.Tuple{Source: by, Destination: from},
	}
}

// forgetIn ends stale flows of a table that nobody looked at lately.
func forgetIn(
	ctx context.Context, table conntrack.Table, isLocal selection.IsLocal, flows []selection.Flows, scope selection.Scope,
) (map[model.Family]Pass, error) {
	return Forget(ctx, conntrack.NewLooks(table, nil), isLocal, func() ([]selection.Flows, selection.Scope) { return flows, scope })
}

// endedIn ends stale flows of a table, and returns how many.
func endedIn(ctx context.Context, table conntrack.Table, isLocal selection.IsLocal, flows []selection.Flows) (ended int, err error) {
	passes, err := forgetIn(ctx, table, isLocal, flows, clusterScope)
	for _, pass := range passes {
		ended += pass.Ended
	}
	return ended, err
}

const (
	service4 = "10.96.0.10:53"
	service6 = "[fd00:96::a]:53"
)

// staleTable is a table with three stale flows in IPv4 and one in IPv6.
func staleTable() *scripted {
	s := &scripted{}
	for _, client := range []string{"10.244.1.11:1", "10.244.1.12:1", "10.244.1.13:1"} {
		s.entries = append(s.entries, entryOf(client, service4, "10.244.1.1:53"))
	}
	s.entries = append(s.entries, entryOf("[fd00:244::9]:1", service6, "[fd00:244::1]:53"))
	return s
}

func TestWhatIsReadAndEndedAndReported(t *testing.T) {
	tcp := frontend(service4)
	tcp.Frontend.Protocol = model.TCP
	four, six := frontend(service4), frontend(service6)
	both := []conntrack.Filter{{Protocol: model.UDP}}
	only4 := []conntrack.Filter{{Family: conntrack.OnlyIPv4, Protocol: model.UDP}}
	only6 := []conntrack.Filter{{Family: conntrack.OnlyIPv6, Protocol: model.UDP}}
	for name, c := range map[string]struct {
		flows         []selection.Flows
		isInterrupted bool
		deleteErrors  []error
		wantDumps     []conntrack.Filter
		wantDeletes   int
		wantEnded     int
		wantError     string // a part of it; empty: none
	}{
		"nothing changed: nothing is read":         {nil, false, nil, nil, 0, 0, ""},
		"no frontend of UDP: nothing is read":      {list(tcp), false, nil, nil, 0, 0, ""},
		"one family changed: the other stays shut": {list(six), false, nil, only6, 1, 1, ""},
		"many frontends, one dump":                 {list(four, six, frontend("10.96.0.11:53"), tcp), false, nil, both, 4, 4, ""},
		"of an interrupted dump the part that was seen is dealt with, and the error says that it was a part": {
			list(four), true, nil, only4, 1, 1, "listing the UDP flows in conntrack: the table changed too fast to be read",
		},
		"a flow that the kernel keeps keeps no other": {
			list(four), false, []error{unix.EBUSY}, only4, 3, 2,
			"ending the flow UDP from 10.244.1.11 to 10.96.0.10:53, answered by 10.244.1.1:53: device or resource busy",
		},
		"of many such the first is named": {list(four), false, []error{nil, unix.EBUSY, unix.EBUSY}, only4, 3, 1, "from 10.244.1.12 to"},
		"and the others are counted":      {list(four), false, []error{nil, unix.EBUSY, unix.EBUSY}, only4, 3, 1, "busy; and 1 more"},
		"any other refusal ends the work": {
			list(four, six), false, []error{nil, unix.EPERM}, both, 2, 1,
			"from 10.244.1.12 to 10.96.0.10:53, answered by 10.244.1.1:53: operation not",
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := staleTable()
			table.isInterrupted, table.deleteErrors = c.isInterrupted, c.deleteErrors

			ended, err := endedIn(t.Context(), table, isNodes, c.flows)

			if ended != c.wantEnded {
				t.Errorf("%d flows are said to have ended, want %d", ended, c.wantEnded)
			}
			if diff := cmp.Diff(c.wantDumps, table.dumps); diff != "" {
				t.Errorf("dumps (-want +got):\n%s", diff)
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

func TestALookIsReportedByFamily(t *testing.T) {
	table, flows := staleTable(), list(frontend(service4), frontend(service6))
	passes, err := forgetIn(t.Context(), table, isNodes, flows, clusterScope)
	if err != nil || passes[model.IPv4].Ended != 3 || passes[model.IPv6].Ended != 1 {
		t.Errorf("%v, %v; want 3 flows of IPv4 and 1 of IPv6", passes, err)
	}
	// The table says that it was read for a millisecond, whatever came before.
	if took := passes[model.IPv4].Took; took < time.Millisecond || took > time.Minute {
		t.Errorf("it took %s, want a bit more than a millisecond", took)
	}
	table.isInterrupted = true
	if passes, _ := forgetIn(t.Context(), table, isNodes, flows, clusterScope); passes[model.IPv4].Took != 0 {
		t.Errorf("a look that failed took %s, want no duration", passes[model.IPv4].Took)
	}
}

// TestAKernelThatDoesNotAnswerEndsNothing: the flow that it was asked about stays, and flows whose fate does not depend
// on the answer end. It is asked once.
func TestAKernelThatDoesNotAnswerEndsNothing(t *testing.T) {
	table, asked := staleTable(), 0
	for _, client := range []string{"203.0.113.7:1", "203.0.113.8:1"} {
		table.entries = append(table.entries, entryOf(client, vip, "10.244.2.1:53"))
	}
	isLocal := func(netip.Addr) (bool, error) { asked++; return false, unix.ENOBUFS }
	flows := list(frontend(service4), split(vip, permitted{endpointA, endpointB}, permitted{endpointA}))

	ended, err := endedIn(t.Context(), table, isLocal, flows)

	if ended != 3 || !errors.Is(err, unix.ENOBUFS) || asked != 1 {
		t.Errorf("ended %d flows, %v, asked %d times; want the 3 of the other frontend, the kernel's error, and one question", ended, err, asked)
	}
}

func TestForgettingStopsWhenItsContextEnds(t *testing.T) {
	table := staleTable()
	ctx, cancel := context.WithCancel(t.Context())
	table.afterDelete = cancel

	ended, err := endedIn(ctx, table, isNodes, list(frontend(service4)))

	if ended != 1 || !errors.Is(err, context.Canceled) || len(table.deleted) != 1 {
		t.Errorf("ended %d flows, asked for %d, error %v; want one and the context's error", ended, len(table.deleted), err)
	}
	if want := "ending the last 2 of 3 stale flows"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one with %q", err, want)
	}
}

// TestAFlowWhoseEndpointComesBackStays: that is noted while the flows of a look are ended.
func TestAFlowWhoseEndpointComesBackStays(t *testing.T) {
	for name, frontends := range map[string]struct{ gone, back selection.Flows }{
		"of a ClusterIP":            {frontend(service4), frontend(service4, netip.MustParseAddrPort("10.244.1.1:53"))},
		"of another Service's port": {frontend(service4), frontend("0.0.0.0:53", netip.MustParseAddrPort("10.244.1.1:53"))},
	} {
		table := staleTable()
		r := NewReconciler(conntrack.NewLooks(table, nil), isNodes)
		r.Note(list(frontends.gone), clusterScope)
		table.afterDelete = func() { r.Note(list(frontends.back), clusterScope) }
		r.pass(t.Context(), func(passes map[model.Family]Pass, err error) {
			if passes[model.IPv4].Ended != 1 || err != nil {
				t.Errorf("%s: %v, %v; want that only the first flow ended", name, passes, err)
			}
		})
		if len(table.deleted) != 1 {
			t.Errorf("%s: the flows of %v were deleted, want the first alone", name, table.deleted)
		}
	}
}
