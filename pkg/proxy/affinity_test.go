package proxy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// Each case starts with the endpoints 1, 2 and 3, of which 3 leaves.
func TestClientsOfAnEndpointThatLeavesAreForgotten(t *testing.T) {
	type kernelOf = func(t *testing.T, k *scriptedKernel)
	once := func(hook func()) func() {
		done := false
		return func() {
			if !done {
				done = true
				hook()
			}
		}
	}
	tests := map[string]struct {
		prepare kernelOf
		restart bool // a new proxy, with the kernel as it is
		want    []string
	}{
		"those who were remembered before": {
			prepare: func(t *testing.T, k *scriptedKernel) {
				k.remember(t, ruleset.Add, 1, 1)
				k.remember(t, ruleset.Add, 2, 3)
				k.remember(t, ruleset.Add, 3, 2)
				k.remember(t, ruleset.Add, 4, 3)
			},
			want: []string{"1:1", "3:2"},
		},
		"one who is learnt between reading and committing": {
			prepare: func(t *testing.T, k *scriptedKernel) { k.read = once(func() { k.remember(t, ruleset.Add, 5, 3) }) },
		},
		"one who is learnt while the commit is under way": {
			prepare: func(t *testing.T, k *scriptedKernel) {
				k.remember(t, ruleset.Add, 1, 1)
				hook := once(func() { k.remember(t, ruleset.Add, 5, 3); k.remember(t, ruleset.Add, 6, 2) })
				k.committed = func(ruleset.Batch) { hook() }
			},
			want: []string{"1:1", "6:2"},
		},
		"one who expires between reading and committing": {
			prepare: func(t *testing.T, k *scriptedKernel) {
				k.remember(t, ruleset.Add, 5, 3)
				k.read = once(func() { k.remember(t, ruleset.Delete, 5, 3) })
			},
		},
		"those whom a proxy finds that starts": {
			prepare: func(t *testing.T, k *scriptedKernel) {
				k.remember(t, ruleset.Add, 1, 1)
				k.remember(t, ruleset.Add, 2, 3)
				hook := once(func() { k.remember(t, ruleset.Add, 5, 3) })
				k.committed = func(ruleset.Batch) { hook() }
			},
			restart: true,
			want:    []string{"1:1"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			kernel := &scriptedKernel{}
			p := starting(kernel)
			p.Apply(stickyService(1, 2, 3))
			mustSync(t, p)
			test.prepare(t, kernel)
			if test.restart {
				p = starting(kernel)
			}
			p.Apply(stickyService(1, 2))
			if report := mustSync(t, p); report.Complete != test.restart {
				t.Errorf("the sync was complete: %v, want %v", report.Complete, test.restart)
			}
			if diff := cmp.Diff(test.want, kernel.remembered(t)); diff != "" {
				t.Errorf("clients and their endpoints (-want +got):\n%s", diff)
			}
		})
	}
}

// TestClientsAreLookedThroughOnlyWhenAnEndpointLeaves, because a map may hold tens of thousands.
func TestClientsAreLookedThroughOnlyWhenAnEndpointLeaves(t *testing.T) {
	reads := 0
	kernel := &scriptedKernel{}
	kernel.read = func() { reads++ }
	p := starting(kernel)
	for _, step := range []struct {
		title     string
		endpoints []int
		reads     int
	}{
		{"the Service is new", []int{1, 2}, 0},
		{"an endpoint comes", []int{1, 2, 3}, 0},
		{"nothing changes", []int{1, 2, 3}, 0},
		{"an endpoint leaves: before and after the commit", []int{1, 2}, 2},
		{"all leave, and the map with them", nil, 0},
	} {
		reads = 0
		p.Apply(stickyService(step.endpoints...))
		mustSync(t, p)
		if reads != step.reads {
			t.Errorf("%s: the clients were read %d times, want %d", step.title, reads, step.reads)
		}
	}
}
