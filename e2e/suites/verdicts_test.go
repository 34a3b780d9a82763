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

// Whatever specs do, no proxy may take a living node for dead. What proxies decide about nodes is followed from before the
// first spec until after the last one, and each node that they named was without power at that time.
var (
	outages  []outage
	followed *verdicts
)

// outage is a time in which a node was stopped, or was not back yet. Only the first process knows of any: specs that stop
// nodes are Serial.
type outage struct {
	node     string
	from, to time.Time // to is zero until the node is back
}

func noteOutage(nodes []node) {
	for _, on := range nodes {
		outages = append(outages, outage{node: on.name, from: time.Now()})
	}
}

func noteReturn(nodes []node) {
	for i := range outages {
		if outages[i].to.IsZero() && slices.ContainsFunc(nodes, func(on node) bool { return on.name == outages[i].node }) {
			outages[i].to = time.Now()
		}
	}
}

// verdict is what a proxy logs when it has decided about a node.
type verdict struct {
	at       time.Time
	by, node string
}

func (v verdict) isRight() bool {
	return slices.ContainsFunc(outages, func(o outage) bool {
		return o.node == v.node && o.from.Before(v.at) && (o.to.IsZero() || v.at.Before(o.to))
	})
}

func (v verdict) String() string {
	return fmt.Sprintf("%s: %s does not answer %s", v.at.Format(time.StampMilli), v.node, v.by)
}

var verdictLine = regexp.MustCompile(`^(\S+) .*"?a node does not answer this one"?.*unreachable-node"?[=:]"?([a-z0-9.-]+)`)

// verdicts are those of all proxies, those that specs end included.
type verdicts struct {
	stop  context.CancelFunc
	lines sync.WaitGroup

	mutex    sync.Mutex
	reading  map[string]bool // whose log is read: containers
	heard    map[string]bool // who said anything
	verdicts map[verdict]bool
}

// followVerdicts reads the logs of all proxies until it is stopped.
func (c cluster) followVerdicts() *verdicts {
	ctx, stop := context.WithCancel(context.Background())
	v := &verdicts{stop: stop, reading: map[string]bool{}, heard: map[string]bool{}, verdicts: map[verdict]bool{}}
	v.lines.Go(func() {
		defer GinkgoRecover()
		for ctx.Err() == nil {
			v.readNew(ctx, c)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	return v
}

// readNew begins to read the logs of containers that are new, and those again whose end was not heard.
func (v *verdicts) readNew(ctx context.Context, c cluster) {
	pods, err := c.findProxyPods(ctx)
	if err != nil {
		return // the API server is asked again in a second
	}
	for _, pod := range pods {
		for _, status := range pod.Status.ContainerStatuses {
			if id := status.ContainerID; status.State.Running != nil && v.begins(id) {
				v.lines.Go(func() { v.read(ctx, c, &pod, id) })
			}
		}
	}
}

const longestLine = 1 << 20

func (v *verdicts) begins(container string) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	begins := !v.reading[container]
	v.reading[container] = true
	return begins
}

func (v *verdicts) read(ctx context.Context, c cluster, pod *corev1.Pod, container string) {
	defer func() {
		v.mutex.Lock()
		defer v.mutex.Unlock()
		delete(v.reading, container)
	}()
	log, err := c.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true, Timestamps: true}).Stream(ctx)
	if err != nil {
		return
	}
	defer log.Close()
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, longestLine)
	for lines.Scan() { // until the container ends, or the suite does
		v.take(pod.Spec.NodeName, lines.Text())
	}
}

func (v *verdicts) take(by, line string) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.heard[by] = true
	found := verdictLine.FindStringSubmatch(line)
	if found == nil {
		return
	}
	at, err := time.Parse(time.RFC3339Nano, found[1])
	if err == nil {
		v.verdicts[verdict{at: at, by: by, node: found[2]}] = true
	}
}

// end stops reading, and returns all verdicts in their order, and the nodes whose proxies were heard.
func (v *verdicts) end(ctx context.Context) (all []verdict, heard map[string]bool) {
	GinkgoHelper()
	v.stop()
	ended := make(chan struct{})
	go func() {
		v.lines.Wait()
		close(ended)
	}()
	Eventually(ended).WithContext(ctx).Should(BeClosed(), "no log is read any more")
	for one := range v.verdicts {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b verdict) int { return a.at.Compare(b.at) })
	return all, v.heard
}

// expectOnlyDeadNodesJudged looks through what proxies have decided.
func expectOnlyDeadNodesJudged(ctx SpecContext) {
	GinkgoHelper()
	if followed == nil { // the suite did not begin
		return
	}
	all, heard := followed.end(ctx)
	for _, on := range kube.nodes {
		Expect(heard).To(HaveKey(on.name), "nodes whose proxies' logs could be read")
	}
	var wrong []verdict
	for _, one := range all {
		if !one.isRight() {
			wrong = append(wrong, one)
		}
	}
	GinkgoWriter.Printf("%d verdicts, %d of them wrong; nodes were stopped: %v\n", len(all), len(wrong), outages)
	Expect(wrong).To(BeEmpty(), "verdicts against nodes that no spec had stopped")
}
