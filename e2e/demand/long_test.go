package demand_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const (
	// longPerSecond is the rate of new connections in busyZone, and longDuration how long they stay open. shortPerSecond is
	// the rate in the other zones, whose connections are closed at once.
	longPerSecond, shortPerSecond = 8, 100
	longDuration                  = 30 * time.Second
)

// longConnections are connections that stay open for longDuration.
type longConnections struct {
	mutex  sync.Mutex
	open   map[string]int // by the pod that responded
	failed int
}

// load starts clients until the test ends: long connections from busyZone, short ones from the other zones.
func (c *testCluster) load(t *testing.T) *longConnections {
	t.Helper()
	long := &longConnections{open: map[string]int{}}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	inZone := map[bool]int{}
	for _, node := range c.nodes {
		inZone[zoneNamed(node.Name) == busyZone]++
	}
	for i, node := range c.nodes {
		isLong := zoneNamed(node.Name) == busyZone
		rate, connect := float64(shortPerSecond), func() error { _, err := c.pods[i].Get(c.web); return err }
		if isLong {
			rate, connect = longPerSecond, func() error { return long.hold(c, c.pods[i], stop) }
		}
		pause := time.Duration(float64(time.Second) * float64(inZone[isLong]) / rate)
		clients.Go(func() {
			repeat(pause, stop, func() {
				if connect() != nil {
					long.mutex.Lock()
					defer long.mutex.Unlock()
					long.failed++
				}
			})
		})
	}
	t.Cleanup(func() {
		close(stop)
		clients.Wait()
		if long.failed > 0 {
			t.Errorf("%d connections failed", long.failed)
		}
	})
	return long
}

// hold opens a connection from a pod, and keeps it open for longDuration, or until stop is closed.
func (l *longConnections) hold(c *testCluster, from *fabric.Pod, stop chan struct{}) error {
	conn, err := from.Dial("tcp", c.web.String(), wait.Timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", c.web); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var reply fabric.Reply
	if err := json.NewDecoder(response.Body).Decode(&reply); err != nil {
		return err
	}
	l.add(reply.Pod, 1)
	defer l.add(reply.Pod, -1)
	select {
	case <-stop:
	case <-time.After(longDuration):
	}
	return nil
}

func (l *longConnections) add(pod string, change int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.open[pod] += change
}

// busiest returns the number of open connections of the pod with most of them, as a multiple of the mean, and the mean.
func (l *longConnections) busiest(c *testCluster) (load, mean float64) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	highest, total := 0, 0
	for _, count := range l.open {
		highest, total = max(highest, count), total+count
	}
	mean = float64(total) / float64(len(c.pods))
	return float64(highest) / mean, mean
}

// TestLoadBoundHoldsForLongConnections has three zones with two nodes and endpoints each. Nearly all new connections are
// short and from two zones, and nearly all open ones are long and from the third. Planned by new connections alone, the
// third zone would keep all of them.
func TestLoadBoundHoldsForLongConnections(t *testing.T) {
	c := newTestClusterOf(t, "measured", "node-a1", "node-a2", "node-b1", "node-b2", "node-c1", "node-c2")
	long := c.load(t)
	wait.Until(t, "long connections", func() bool { _, mean := long.busiest(c); return mean >= longPerSecond*20/6 })
	if load, _ := long.busiest(c); load < 2.5 {
		t.Errorf("without measured demand, the busiest endpoint has %.2f times the mean of open connections, want at least 2.5", load)
	}
	c.start(t, "one", time.Hour)
	wait.Until(t, "open connections are published", func() bool {
		object := objectOf(t, c.client, "web")
		if object == nil {
			return false
		}
		for _, zone := range object.Zones {
			if zone.Zone == busyZone {
				return zone.DemandPPM < 200_000 && zone.OpenPPM > 800_000
			}
		}
		return false
	})
	t.Logf("published: %v", objectOf(t, c.client, "web").Zones)
	time.Sleep(longDuration) // until all connections were opened with the new plan
	limit := 0.
	for attempt := range 3 {
		load, mean := long.busiest(c)
		limit = withinBound + 3*math.Sqrt(withinBound/mean)
		t.Logf("the busiest endpoint has %.2f times the mean of %.0f open connections", load, mean)
		if load <= limit {
			return
		}
		if attempt == 2 {
			t.Errorf("the busiest endpoint has %.2f times the mean of %.0f open connections, want at most %.2f", load, mean, limit)
		}
		time.Sleep(longDuration)
	}
}
