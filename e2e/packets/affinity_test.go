package packets_test

import (
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// sticks asks a number of times and returns the one pod that must always answer.
func sticks(t *testing.T, client *fabric.Namespace, to path, times int) string {
	t.Helper()
	first := mustAsk(t, client, to).Pod
	for range times - 1 {
		if got := mustAsk(t, client, to).Pod; got != first {
			t.Fatalf("%s: %s answered after %s", to, got, first)
		}
	}
	return first
}

// TestAClientKeepsItsEndpoint: across connections, other clients' connections, changes of other endpoints and a restart of
// the proxy; and gets another one at once when its own leaves.
func TestAClientKeepsItsEndpoint(t *testing.T) {
	c := newCluster(t, 2)
	servers := map[string]*pod{}
	for _, name := range []string{"a", "b", "c", "d"} {
		servers[name] = c.addServer(c.nodes[len(servers)%2], name)
	}
	without := func(names ...string) []*pod {
		left := []*pod{}
		for _, name := range []string{"a", "b", "c", "d"} {
			if name != names[0] && name != names[len(names)-1] {
				left = append(left, servers[name])
			}
		}
		return left
	}
	client, other := c.addPod(c.nodes[0], "client"), c.addPod(c.nodes[0], "other")
	c.apply(service(affinity(time.Hour)))
	for _, to := range paths {
		c.apply(endpoints(without("none")...))
		own := sticks(t, client.Namespace, to, 12)
		sticks(t, other.Namespace, to, 12)
		sticks(t, c.nodes[0].Namespace, to, 12)

		another := map[bool]string{true: "a", false: "b"}[own != "a"]
		c.apply(endpoints(without(another)...))
		c.restart(c.nodes[0])
		c.sync(c.nodes[0])
		if got := sticks(t, client.Namespace, to, 8); got != own {
			t.Fatalf("%s: %s answers after another endpoint left and the proxy restarted; it was %s", to, got, own)
		}

		c.apply(endpoints(without(own, another)...))
		if got := sticks(t, client.Namespace, to, 8); got == own {
			t.Fatalf("%s: %s still answers, which is no endpoint any more", to, got)
		}
	}
}

// TestAffinityEndsAfterItsTimeout, counted from the newest connection.
func TestAffinityEndsAfterItsTimeout(t *testing.T) {
	c := newCluster(t, 1)
	servers := []*pod{c.addServer(c.nodes[0], "a"), c.addServer(c.nodes[0], "b"), c.addServer(c.nodes[0], "c")}
	client := c.addPod(c.nodes[0], "client")
	const timeout = time.Second
	c.apply(service(affinity(timeout)))
	c.apply(endpoints(servers...))
	for _, to := range []path{paths[0], paths[3]} {
		first := mustAsk(t, client.Namespace, to).Pod
		for range 5 { // longer than the timeout in all, but each connection renews it
			time.Sleep(timeout / 2)
			if got := mustAsk(t, client.Namespace, to).Pod; got != first {
				t.Fatalf("%s: %s answered after %s, though each connection came within the timeout", to, got, first)
			}
		}
		forgotten := false
		for range 16 { // chance picks the same endpoint 16 times once in 40 million runs
			time.Sleep(timeout + timeout/5)
			if forgotten = mustAsk(t, client.Namespace, to).Pod != first; forgotten {
				break
			}
		}
		if !forgotten {
			t.Errorf("%s: %s still answers long after the timeout", to, first)
		}
	}
}

// TestAffinitySwitchesOffAndOn while the Service is in use.
func TestAffinitySwitchesOffAndOn(t *testing.T) {
	c := newCluster(t, 1)
	servers := []*pod{c.addServer(c.nodes[0], "a"), c.addServer(c.nodes[0], "b")}
	client := c.addPod(c.nodes[0], "client")
	c.apply(service(affinity(time.Hour)))
	c.apply(endpoints(servers...))
	for _, to := range []path{paths[0], paths[3]} {
		sticks(t, client.Namespace, to, 10)
	}
	c.apply(service())
	for _, to := range []path{paths[0], paths[3]} {
		seen := map[string]bool{}
		for range 30 { // chance picks one endpoint 30 times once in 500 million runs
			seen[mustAsk(t, client.Namespace, to).Pod] = true
		}
		if len(seen) != 2 {
			t.Errorf("%s: without affinity only %v answer", to, seen)
		}
	}
	c.apply(service(affinity(time.Hour)))
	for _, to := range []path{paths[0], paths[3]} {
		sticks(t, client.Namespace, to, 10)
	}
}
