//go:build e2e

package suites

import (
	"bufio"
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// No spec may make a proxy eject a live node. The ejections of all proxies are collected from before the first spec
// until after the last one, and each ejected node must have been stopped at that time.
var (
	outages            []outage
	collectedEjections *ejectionLog
)

// outage is a period in which a node was stopped. Only the first process records outages, because specs that stop nodes
// are Serial.
type outage struct {
	node     string
	from, to time.Time // to is zero until the node is ready again
}

func recordOutage(nodes []node) {
	for _, n := range nodes {
		outages = append(outages, outage{node: n.name, from: time.Now()})
	}
}

func recordReturn(nodes []node) {
	for i := range outages {
		if outages[i].to.IsZero() && slices.ContainsFunc(nodes, func(n node) bool { return n.name == outages[i].node }) {
			outages[i].to = time.Now()
		}
	}
}

// ejection is a log line of a proxy that ejected a node.
type ejection struct {
	at             time.Time
	observer, node string
}

func (e ejection) isExpected() bool {
	return slices.ContainsFunc(outages, func(o outage) bool {
		return o.node == e.node && o.from.Before(e.at) && (o.to.IsZero() || e.at.Before(o.to))
	})
}

func (e ejection) String() string {
	return fmt.Sprintf("%s: %s ejected by %s", e.at.Format(time.StampMilli), e.node, e.observer)
}

// ejectionLine matches a log line about an ejection. A line without the node counts as wrong, so that a renamed
// attribute is noticed.
var ejectionLine = regexp.MustCompile(`^(\S+) .*node is unreachable from this node(?:.*unreachableNode"?[=:]"?([a-z0-9.-]+))?`)

// ejectionLog collects the ejections of all proxies, including those that specs restart.
type ejectionLog struct {
	stop  context.CancelFunc
	lines sync.WaitGroup

	mutex       sync.Mutex
	reading     map[string]bool // containers whose log is being read
	loggedNodes map[string]bool // nodes whose proxy has logged anything
	ejections   map[ejection]bool
}

// collectEjections reads the logs of all proxies until end is called.
func (c cluster) collectEjections() *ejectionLog {
	ctx, stop := context.WithCancel(context.Background())
	l := &ejectionLog{stop: stop, reading: map[string]bool{}, loggedNodes: map[string]bool{}, ejections: map[ejection]bool{}}
	l.lines.Go(func() {
		defer GinkgoRecover()
		for ctx.Err() == nil {
			l.readNew(ctx, c)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	return l
}

// readNew starts to read the logs of new containers, and again those whose stream broke.
func (l *ejectionLog) readNew(ctx context.Context, c cluster) {
	pods, err := c.findProxyPods(ctx)
	if err != nil {
		return // retried in a second
	}
	for _, pod := range pods {
		for _, status := range pod.Status.ContainerStatuses {
			if id := status.ContainerID; status.State.Running != nil && l.startReading(id) {
				l.lines.Go(func() { l.read(ctx, c, &pod, id) })
			}
		}
	}
}

const maxLine = 1 << 20

func (l *ejectionLog) startReading(container string) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	isNew := !l.reading[container]
	l.reading[container] = true
	return isNew
}

func (l *ejectionLog) read(ctx context.Context, c cluster, pod *corev1.Pod, container string) {
	defer func() {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		delete(l.reading, container)
	}()
	log, err := c.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true, Timestamps: true}).Stream(ctx)
	if err != nil {
		return
	}
	defer log.Close()
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxLine)
	for lines.Scan() { // until the container or the suite ends
		l.parseLine(pod.Spec.NodeName, lines.Text())
	}
}

func (l *ejectionLog) parseLine(observer, line string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.loggedNodes[observer] = true
	found := ejectionLine.FindStringSubmatch(line)
	if found == nil {
		return
	}
	loggedAt, err := time.Parse(time.RFC3339Nano, found[1])
	if err == nil {
		l.ejections[ejection{at: loggedAt, observer: observer, node: found[2]}] = true
	}
}

// end stops reading. It returns all ejections, sorted by time, and the nodes whose proxies have logged anything.
func (l *ejectionLog) end(ctx context.Context) (all []ejection, logged map[string]bool) {
	GinkgoHelper()
	l.stop()
	ended := make(chan struct{})
	go func() {
		l.lines.Wait()
		close(ended)
	}()
	Eventually(ended).WithContext(ctx).Should(BeClosed(), "all log readers have ended")
	for e := range l.ejections {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b ejection) int { return a.at.Compare(b.at) })
	return all, l.loggedNodes
}

// expectOnlyDeadNodesEjected checks that every ejected node was stopped at that time.
func expectOnlyDeadNodesEjected(ctx SpecContext) {
	GinkgoHelper()
	if collectedEjections == nil { // the suite did not start
		return
	}
	all, logged := collectedEjections.end(ctx)
	for _, n := range kube.nodes {
		Expect(logged).To(HaveKey(n.name), "nodes whose proxies' logs were read")
	}
	var unexpected []ejection
	for _, e := range all {
		if !e.isExpected() {
			unexpected = append(unexpected, e)
		}
	}
	GinkgoWriter.Printf("%d ejections, %d of them wrong; outages: %v\n", len(all), len(unexpected), outages)
	Expect(unexpected).To(BeEmpty(), "ejections of nodes that no spec had stopped")
}
