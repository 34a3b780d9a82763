package packets_test

import (
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// expectOneServer sends a number of requests and returns the pod, which must be the same for all.
func expectOneServer(t *testing.T, client *fabric.Namespace, to path, times int) string {
	t.Helper()
	first := mustRequest(t, client, to).Pod
	for range times - 1 {
		if got := mustRequest(t, client, to).Pod; got != first {
			t.Fatalf("%s: %s replied after %s", to, got, first)
		}
	}
	return first
}

// TestAClientKeepsItsEndpoint checks that a client keeps its endpoint across its own connections, other clients'
// connections, changes of other endpoints and a restart of the proxy. It gets another endpoint at once when its own is
// removed.
func TestAClientKeepsItsEndpoint(t *testing.T) {
	c := newCluster(t, 2)
	servers := map[string]*pod{}
	for _, name := range []string{"a", "b", "c", "d"} {
		servers[name] = c.addServer(c.nodes[len(servers)%2], name)
	}
	without := func(names ...string) []*pod {
		remaining := []*pod{}
		for _, name := range []string{"a", "b", "c", "d"} {
			if name != names[0] && name != names[len(names)-1] {
				remaining = append(remaining, servers[name])
			}
		}
		return remaining
	}
	client, other := c.addPod(c.nodes[0], "client"), c.addPod(c.nodes[0], "other")
	c.apply(service(affinity(time.Hour)))
	for _, to := range paths {
		c.apply(endpoints(without("none")...))
		server := expectOneServer(t, client.Namespace, to, 12)
		expectOneServer(t, other.Namespace, to, 12)
		expectOneServer(t, c.nodes[0].Namespace, to, 12)

		another := map[bool]string{true: "a", false: "b"}[server != "a"]
		c.apply(endpoints(without(another)...))
		c.restart(c.nodes[0])
		c.sync(c.nodes[0])
		if got := expectOneServer(t, client.Namespace, to, 8); got != server {
			t.Fatalf("%s: %s replies after another endpoint was removed and the proxy restarted; want %s", to, got, server)
		}

		c.apply(endpoints(without(server, another)...))
		if got := expectOneServer(t, client.Namespace, to, 8); got == server {
			t.Fatalf("%s: %s still replies, but is not an endpoint any more", to, got)
		}
	}
}

// TestAffinityEndsAfterItsTimeout checks that the timeout counts from the newest connection.
func TestAffinityEndsAfterItsTimeout(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	servers := []*pod{c.addServer(c.nodes[0], "a"), c.addServer(c.nodes[0], "b"), c.addServer(c.nodes[0], "c")}
	client := c.addPod(c.nodes[0], "client")
	const timeout = time.Second
	c.apply(service(affinity(timeout)))
	c.apply(endpoints(servers...))
	for _, to := range []path{paths[0], paths[3]} {
		t.Run(to.String(), func(t *testing.T) {
			t.Parallel()
			expectAffinityRenewed(t, client.Namespace, to, timeout)
			expectAffinityExpires(t, client.Namespace, to, timeout)
		})
	}
}

// expectAffinityRenewed dials for longer than the timeout in total, with shorter pauses than the timeout. It checks nothing
// if the machine was too slow for that.
func expectAffinityRenewed(t *testing.T, client *fabric.Namespace, to path, timeout time.Duration) {
	t.Helper()
	dialledAt := time.Now()
	first := mustRequest(t, client, to).Pod
	for range 5 {
		time.Sleep(timeout / 3)
		before := dialledAt
		dialledAt = time.Now()
		got := mustRequest(t, client, to).Pod
		if got != first && time.Since(before) < timeout {
			t.Fatalf("%s replied after %s, although the connection was within the timeout", got, first)
		}
		first = got
	}
}

// expectAffinityExpires pauses for longer than the timeout between connections until another endpoint responds.
func expectAffinityExpires(t *testing.T, client *fabric.Namespace, to path, timeout time.Duration) {
	t.Helper()
	first := mustRequest(t, client, to).Pod
	for range 16 { // by chance, the same endpoint is picked 16 times once in 40 million runs
		time.Sleep(timeout + timeout/5)
		if mustRequest(t, client, to).Pod != first {
			return
		}
	}
	t.Errorf("%s still replies after pauses longer than the timeout", first)
}

// TestAffinitySwitchesOffAndOn changes the affinity while the Service is in use.
func TestAffinitySwitchesOffAndOn(t *testing.T) {
	c := newCluster(t, 1)
	servers := []*pod{c.addServer(c.nodes[0], "a"), c.addServer(c.nodes[0], "b")}
	client := c.addPod(c.nodes[0], "client")
	c.apply(service(affinity(time.Hour)))
	c.apply(endpoints(servers...))
	for _, to := range []path{paths[0], paths[3]} {
		expectOneServer(t, client.Namespace, to, 10)
	}
	c.apply(service())
	for _, to := range []path{paths[0], paths[3]} {
		seen := map[string]bool{}
		for range 30 { // by chance, one endpoint is picked 30 times once in 500 million runs
			seen[mustRequest(t, client.Namespace, to).Pod] = true
		}
		if len(seen) != 2 {
			t.Errorf("%s: without affinity only %v reply", to, seen)
		}
	}
	c.apply(service(affinity(time.Hour)))
	for _, to := range []path{paths[0], paths[3]} {
		expectOneServer(t, client.Namespace, to, 10)
	}
}
