//go:build e2e

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// testPod is a running pod of e2e/probe, a server or a client. It is controlled through the API server's proxy, so that
// the machine that runs the suites needs no route to the pods.
type testPod struct {
	namespace, name string
	node            node
	addresses       []string // its pod IPs
}

type testPods []testPod

func (c cluster) testPodOf(pod *corev1.Pod) testPod {
	found := testPod{namespace: pod.Namespace, name: pod.Name}
	for _, n := range c.nodes {
		if n.name == pod.Spec.NodeName {
			found.node = n
		}
	}
	for _, address := range pod.Status.PodIPs {
		found.addresses = append(found.addresses, address.IP)
	}
	return found
}

func (p testPod) String() string { return fmt.Sprintf("%s (%s, %s)", p.name, p.node.name, p.node.zone) }

// names returns the pods' names, sorted.
func (all testPods) names() []string {
	names := []string{}
	for _, p := range all {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return names
}

// on returns the pods that run on the given nodes.
func (all testPods) on(nodes ...node) testPods {
	return all.where(func(p testPod) bool { return slices.ContainsFunc(nodes, p.isOn) })
}

// notOn returns the pods that do not run on the given nodes.
func (all testPods) notOn(nodes ...node) testPods {
	return all.where(func(p testPod) bool { return !slices.ContainsFunc(nodes, p.isOn) })
}

// inZone returns the pods that run in a zone.
func (all testPods) inZone(zone string) testPods {
	return all.where(func(p testPod) bool { return p.node.zone == zone })
}

// notInZone returns the pods that do not run in a zone.
func (all testPods) notInZone(zone string) testPods {
	return all.where(func(p testPod) bool { return p.node.zone != zone })
}

func (all testPods) where(belongs func(testPod) bool) testPods {
	var found testPods
	for _, p := range all {
		if belongs(p) {
			found = append(found, p)
		}
	}
	return found
}

func (p testPod) isOn(n node) bool { return p.node.name == n.name }

// maxFailures is the number of failures in a text.
const maxFailures = 10

// results counts the outcomes of a test pod's connections.
type results struct {
	Servers   map[string]int `json:"answers"` // by the server's name
	Clients   map[string]int `json:"clients"` // by the client's address, as servers see it
	Errors    map[string]int `json:"errors"`
	SlowestMS float64        `json:"slowest_ms"`
	Failures  []failure      `json:"failures"` // the first of each call
}

// failure is a connection that failed. Connected is when it was established, or zero if it never was.
type failure struct {
	Error     string    `json:"error"`
	Address   string    `json:"address"`
	Began     time.Time `json:"began"`
	Connected time.Time `json:"connected"`
}

func (f failure) String() string {
	const clock = "15:04:05.000"
	if f.Connected.IsZero() {
		return fmt.Sprintf("to %s at %s: %s", f.Address, f.Began.Format(clock), f.Error)
	}
	return fmt.Sprintf("to %s at %s, established at %s: %s", f.Address, f.Began.Format(clock), f.Connected.Format(clock), f.Error)
}

func (r results) String() string {
	text := fmt.Sprintf("servers %v, errors %v, clients %v, the slowest after %.1f ms", r.Servers, r.Errors, r.Clients, r.SlowestMS)
	if len(r.Failures) > 0 {
		text += fmt.Sprintf(", failures %v", r.Failures[:min(len(r.Failures), maxFailures)])
	}
	return text
}

// servers returns the names of the servers that replied, sorted.
func (r results) servers() []string {
	return slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(r.Servers))))
}

func (r results) replies() int { return sum(r.Servers) }

func (r results) failed() int { return sum(r.Errors) }

// failedDials counts the failed connections that were not established before a power cut. The others were open to a
// node that lost power, and no proxy can keep them.
func (r results) failedDials(cut time.Time) int {
	count := r.failed()
	for _, f := range r.Failures {
		if !f.Connected.IsZero() && f.Connected.Before(cut) {
			count--
		}
	}
	return count
}

// refused counts the connections that were refused.
func (r results) refused() int { return r.failedWith("connection refused") }

// timeouts counts the connections that timed out.
func (r results) timeouts() int { return r.failedWith("timeout") + r.failedWith("deadline exceeded") }

func (r results) failedWith(substring string) int {
	count := 0
	for text, n := range r.Errors {
		if strings.Contains(text, substring) {
			count += n
		}
	}
	return count
}

// plus returns the sum of two results.
func (r results) plus(b results) results {
	return results{
		Servers: sumOf(r.Servers, b.Servers), Clients: sumOf(r.Clients, b.Clients), Errors: sumOf(r.Errors, b.Errors),
		SlowestMS: max(r.SlowestMS, b.SlowestMS), Failures: append(slices.Clip(r.Failures), b.Failures...),
	}
}

func sumOf(a, b map[string]int) map[string]int {
	all := map[string]int{}
	for _, counts := range []map[string]int{a, b} {
		for key, count := range counts {
			all[key] += count
		}
	}
	return all
}

func sum(counts map[string]int) int {
	total := 0
	for _, count := range counts {
		total += count
	}
	return total
}

// dialling configures how a test pod connects to a target.
type dialling struct {
	count      int
	timeout    time.Duration // of each connection
	interval   time.Duration // between the starts of two connections
	sourcePort int           // 0 means any
	overlap    bool          // connections do not wait for earlier ones
}

// dial makes a test pod connect, and logs every result in the spec's output.
func (p testPod) dial(ctx context.Context, to target, how dialling) (results, error) {
	query := map[string]string{
		"network": to.network, "address": to.address, "count": strconv.Itoa(how.count), "timeout": how.timeout.String(),
	}
	if how.interval != 0 {
		query["interval"] = how.interval.String()
	}
	if how.sourcePort != 0 {
		query["source_port"] = strconv.Itoa(how.sourcePort)
	}
	if how.overlap {
		query["overlap"] = "true"
	}
	var got results
	if err := p.request(ctx, "GET", "dial", query, &got); err != nil {
		return results{}, err
	}
	GinkgoWriter.Printf("%s: %s, %d times: %s\n", p, to, how.count, got)
	if got.replies()+got.failed() != how.count {
		return got, fmt.Errorf("%s accounts for %d of %d connections: %s", p, got.replies()+got.failed(), how.count, got)
	}
	return got, nil
}

// resolve returns the addresses to which a test pod resolves a host name.
func (p testPod) resolve(ctx context.Context, host string) ([]string, error) {
	var got struct {
		Addresses []string `json:"addresses"`
	}
	err := p.request(ctx, "GET", "resolve", map[string]string{"host": host}, &got)
	return got.Addresses, err
}

// setReady makes the readiness probe of a pod succeed or fail.
func (p testPod) setReady(ctx context.Context, ready bool) {
	GinkgoHelper()
	Expect(p.request(ctx, "POST", "ready", map[string]string{"value": strconv.FormatBool(ready)}, nil)).To(Succeed())
}

// request sends a request to a test pod's control port, through the API server's proxy, and decodes the JSON response.
func (p testPod) request(ctx context.Context, verb, path string, query map[string]string, into any) error {
	request := kube.CoreV1().RESTClient().Verb(verb).Namespace(p.namespace).Resource("pods").
		Name(fmt.Sprintf("http:%s:%d", p.name, controlPort)).SubResource("proxy").Suffix(path)
	for key, value := range query {
		request = request.Param(key, value)
	}
	body, err := request.DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("request %s/%s: %w: %s", p, path, err, body)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decode response of %s to /%s: %w: %s", p, path, err, body)
	}
	return nil
}
