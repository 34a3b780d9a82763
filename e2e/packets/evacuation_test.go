package packets_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// evacuationTimeout is the time after a label until no new connection goes to the node. The suites promise a second. Here 400 flows
// and their servers keep all CPUs busy, and it takes up to 1.3 s on two slow CPUs.
const evacuationTimeout = 3 * time.Second

// TestAnEvacuationMovesNewConnectionsAndNoEstablishedOne labels and unlabels a node during 200 open connections and 200
// UDP flows, while every client makes new ones.
func TestAnEvacuationMovesNewConnectionsAndNoEstablishedOne(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]func(*model.Service){
		"no preference":                 nil,
		"same zone first, with a bound": {topologyKeys(policy.Zone, policy.AnyNode), maxLoad(130)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3)
			var leaving, staying []*pod
			var clients []*fabric.Pod
			// The last of the remaining nodes is alone in its zone, so that the load bound has an effect.
			for number, count := range []int{4, 2, 1} {
				clients = append(clients, c.addPod(c.nodes[number], fmt.Sprint("client-", number)))
				for range count {
					server := c.addServer(c.nodes[number], fmt.Sprintf("server-%d-%d", number, len(leaving)+len(staying)))
					if number == 1 {
						leaving = append(leaving, server)
					} else {
						staying = append(staying, server)
					}
				}
			}
			c.apply(model.Change{AllNodes: new(true)}.Merge(service(edits...)).Merge(endpoints(slices.Concat(leaving, staying)...)))
			label := func(demotion *model.Demotion) (labelledAt time.Time) {
				labelledAt = time.Now()
				c.apply(model.Change{Demotions: map[model.DemotionKey]*model.Demotion{{Node: c.nodes[1].Name}: demotion}})
				return labelledAt
			}

			const eachNetwork = 200
			flows := openMany(t, clients, "tcp", eachNetwork)
			flows = append(flows, openMany(t, clients, "udp", eachNetwork)...)
			if toLeaving := countServedBy(flows, leaving); toLeaving < len(flows)/10 {
				t.Errorf("only %d of %d flows go to the endpoints to evacuate, so little was tested", toLeaving, len(flows))
			}
			load := startTraffic(clients, flows)
			time.Sleep(evacuationTimeout / 4) // let the clients make connections
			labelled := label(&model.Demotion{})
			const each = 500
			shared := c.measure(clients, staying, each)
			time.Sleep(time.Until(labelled.Add(evacuationTimeout * 5 / 4)))
			unlabelled := label(nil)
			time.Sleep(evacuationTimeout * 5 / 4)
			seen := load.stop()

			seen.expectNothingBroke(t, flows)
			seen.expectMoved(t, labelled, unlabelled, leaving)
			// The mean of the remaining endpoints is 300 connections; chance exceeds 4.4 standard deviations once in a hundred
			// thousand.
			mean := float64(shared.all) / float64(len(staying))
			const rounding = 0.026 // of slots, as package balance states
			if busiest, most := shared.busiest(len(staying)), 1.3*(1+rounding)+4.4*math.Sqrt(1.3/mean); busiest > most {
				t.Errorf("while the node is evacuated the busiest endpoint gets %.2f times the mean, want %.2f at most", busiest, most)
			}
			t.Logf("%d of the flows go to evacuated endpoints; the busiest of the others gets %.2f times the mean",
				countServedBy(flows, leaving), shared.busiest(len(staying)))
		})
	}
}

// openMany opens the given number of connections over one network, alternating between clients and families.
func openMany(t *testing.T, clients []*fabric.Pod, network string, count int) []*openConnection {
	t.Helper()
	to := overNetworks(paths, network)
	var all []*openConnection
	for number := range count {
		from := clients[number%len(clients)].Namespace
		family := number / len(clients) % len(to)
		all = append(all, openConnections(t, []*fabric.Namespace{from}, to[family:family+1])...)
	}
	return all
}

// countServedBy counts the flows to the given servers.
func countServedBy(flows []*openConnection, servers []*pod) (count int) {
	for _, flow := range flows {
		if isOneOf(flow.first.Pod, servers) {
			count++
		}
	}
	return count
}

func isOneOf(name string, servers []*pod) bool {
	return slices.ContainsFunc(servers, func(server *pod) bool { return server.Name == name })
}

// traffic is the continuous load of clients: requests over open flows, and new connections.
type traffic struct {
	ended   chan struct{}
	running sync.WaitGroup

	mu       sync.Mutex
	requests int // over flows
	// broken are the errors of flows without a response, or with a response of another server.
	broken map[*openConnection]error
	made   attempts
}

// attempt is a new connection.
type attempt struct {
	began, repliedAt time.Time
	server           string
	err              error
}

type attempts []attempt

func (all attempts) where(match func(attempt) bool) (found attempts) {
	for _, one := range all {
		if match(one) {
			found = append(found, one)
		}
	}
	return found
}

func startTraffic(clients []*fabric.Pod, flows []*openConnection) *traffic {
	tr := &traffic{ended: make(chan struct{}), broken: map[*openConnection]error{}}
	const requestInterval = 2 * time.Millisecond // leaves CPU time to the proxies
	for _, client := range clients {
		ownFlows := slices.DeleteFunc(slices.Clone(flows), func(flow *openConnection) bool { return flow.from != client.Namespace })
		tr.running.Go(func() {
			for number := 0; tr.pause(requestInterval); number++ {
				tr.requestOver(ownFlows[number%len(ownFlows)])
			}
		})
		tr.running.Go(func() {
			to := overNetworks(paths, "tcp", "udp")
			for number := 0; tr.pause(requestInterval); number++ {
				tr.connect(client.Namespace, to[number%len(to)])
			}
		})
	}
	return tr
}

// pause waits a moment, and reports whether the clients should continue.
func (tr *traffic) pause(interval time.Duration) bool {
	select {
	case <-tr.ended:
		return false
	case <-time.After(interval):
		return true
	}
}

func (tr *traffic) requestOver(flow *openConnection) {
	reply, err := flow.Request(fabric.Timeout)
	if err == nil && reply != flow.first {
		err = fmt.Errorf("reply %+v, want %+v as at first", reply, flow.first)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.requests++
	if err != nil {
		tr.broken[flow] = err
	}
}

func (tr *traffic) connect(from *fabric.Namespace, to path) {
	a := attempt{began: time.Now()}
	reply, err := from.Request(to.network, to.addr, fabric.Timeout)
	a.repliedAt, a.server, a.err = time.Now(), reply.Pod, err
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.made = append(tr.made, a)
}

// stop ends the traffic. Afterwards its fields do not change.
func (tr *traffic) stop() *traffic {
	close(tr.ended)
	tr.running.Wait()
	return tr
}

// expectNothingBroke checks that each flow was used and still works, and that no new connection failed.
func (tr *traffic) expectNothingBroke(t *testing.T, flows []*openConnection) {
	t.Helper()
	for flow, err := range tr.broken {
		t.Errorf("%s from %s: %v", flow.to, flow.from.Name, err)
	}
	expectContinues(t, "the label was removed", flows)
	if tr.requests < len(flows) {
		t.Errorf("%d flows were used only %d times, so little was tested", len(flows), tr.requests)
	}
	failed := 0
	for _, one := range tr.made {
		if one.err != nil {
			failed++
			t.Errorf("a new connection failed: %v", one.err)
		}
	}
	t.Logf("%d of %d flows broke in %d requests; %d of %d new connections failed",
		len(tr.broken), len(flows), tr.requests, failed, len(tr.made))
}

// expectMoved checks that the evacuated servers get new connections before the label and after it, and none in between,
// except for a moment.
func (tr *traffic) expectMoved(t *testing.T, labelled, unlabelled time.Time, leaving []*pod) {
	t.Helper()
	toLeaving := func(one attempt) bool { return isOneOf(one.server, leaving) }
	before := tr.made.where(func(one attempt) bool { return toLeaving(one) && one.repliedAt.Before(labelled) })
	during := tr.made.where(func(one attempt) bool { return one.began.After(labelled) && one.repliedAt.Before(unlabelled) })
	settled := during.where(func(one attempt) bool { return one.began.Sub(labelled) > evacuationTimeout })
	const few = 20
	if len(before) == 0 || len(settled) < few {
		t.Errorf("%d connections to the node before the label, want some; %d to any node during the evacuation, want more",
			len(before), len(settled))
	}
	late := settled.where(toLeaving)
	if len(late) > 0 {
		t.Errorf("%d of %d new connections went to the node more than %s after the label", len(late), len(settled), evacuationTimeout)
	}
	afterLabel := during.where(toLeaving)
	last := time.Duration(0)
	for _, one := range afterLabel {
		last = max(last, one.began.Sub(labelled))
	}
	t.Logf("%d new connections went to the node after the label, the last after %s; %d of %d later than %s",
		len(afterLabel), last.Round(time.Microsecond), len(late), len(settled), evacuationTimeout)
	for _, server := range leaving {
		returned := tr.made.where(func(one attempt) bool { return one.server == server.Name && one.began.After(unlabelled) })
		first := time.Hour
		for _, one := range returned {
			first = min(first, one.repliedAt.Sub(unlabelled))
		}
		if first > evacuationTimeout {
			t.Errorf("%s got no new connection within %s after the label was removed", server.Name, evacuationTimeout)
		}
		t.Logf("%s got a new connection %s after the label was removed", server.Name, first.Round(time.Microsecond))
	}
}
