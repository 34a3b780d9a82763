package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// TestFailedActKeepsEarlierResults checks that the results and mistakes of the earlier acts are printed, and the
// mistakes of the failed act.
func TestFailedActKeepsEarlierResults(t *testing.T) {
	act := func(name, shown string, wrong []string, err error) actGroup {
		return actGroup{name, func(context.Context, *page) (string, []string, error) { return shown, wrong, err }}
	}
	var printed strings.Builder
	p := &page{w: &printed}
	shown, wrong := playAll(t.Context(), p, []actGroup{
		act("acts 1 to 3", "All stayed.", nil, nil),
		act("act 6", "None failed.", []string{"act 6. 3 of 800 connections failed"}, nil),
		act("act 7", "No byte crossed.", []string{"act 7. a connection failed"}, errors.New("get /metrics of node-b1")),
		act("act 8", "Never played.", nil, nil),
	})
	if err := (&setup{}).finish(p, shown, wrong); !errors.Is(err, errUnexpected) {
		t.Errorf("finish() = %v, want %v", err, errUnexpected)
	}
	want := `
✓ All stayed.

━━ What went wrong ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━

  ✗ act 6. 3 of 800 connections failed
  ✗ act 7. a connection failed
  ✗ act 7 failed, so the demo ends here: get /metrics of node-b1
`
	if diff := cmp.Diff(want, printed.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}

func TestBusyMachineIsReported(t *testing.T) {
	succeeded := []second{{made: 100, waited: 16, maxLatency: 3 * time.Second}, {made: 100}}
	failed := []second{{made: 100, waited: 16, failed: 1, err: errors.New("deadline"), maxLatency: 3 * time.Second}, {made: 100}}
	idle, busy := second{made: 20}, second{made: 20, waited: 2, maxLatency: 900 * time.Millisecond}
	const machine = "the machine is busy, which may be the cause: of 20 connections directly to a pod, without a proxy, 2 waited, " +
		"at most 0.9 s, and 0 failed; run the demo again on an idle machine"
	for name, test := range map[string]struct {
		seconds  []second
		straight second
		unknown  error
		want     []string
	}{
		"all as expected":                       {succeeded, idle, nil, nil},
		"all as expected on a busy machine":     {succeeded, busy, nil, nil},
		"a connection fails on an idle machine": {failed, idle, nil, []string{"1 of 200 connections failed: deadline"}},
		"a connection fails on a busy machine":  {failed, busy, nil, []string{"1 of 200 connections failed: deadline", machine}},
		"a proxy never detects it":              {succeeded, idle, errors.New("the proxy on node-a1"), []string{"the proxy on node-a1"}},
		"no connection waits": {[]second{{made: 100}}, idle, nil, []string{
			"no connection waited, so the demo does not show a failure",
		}},
		"connections of the last second wait": {
			succeeded[:1], idle, nil, []string{"16 of 100 connections of the last second waited: the node is not demoted"},
		},
	} {
		if got := nodeFailureMistakes(test.seconds, test.straight, test.unknown); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestUnresponsiveProxyIsReported checks that the error names the proxy and the page.
func TestUnresponsiveProxyIsReported(t *testing.T) {
	network, err := fabric.New()
	must(t, err)
	t.Cleanup(func() { must(t, network.Close()) })
	node, err := network.AddNode("node-b1")
	must(t, err)
	_, err = (&proxy{node: node}).page(t.Context(), metricsAddress, "/metrics")
	if err == nil || !strings.Contains(err.Error(), "the proxy on node-b1") || !strings.Contains(err.Error(), "/metrics") {
		t.Errorf("got %v, want an error that names the proxy and the page", err)
	}
}
