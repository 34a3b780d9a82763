// Package clusterstatus queries the status of the proxies on all nodes through the API server.
//
// It uses the proxy subresource of pods, and the address that serves /livez. That address is reachable from other nodes
// anyway, while metrics are usually served on loopback. exec would need a larger permission: to run any command in the
// pod, with its privileges.
package clusterstatus

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/boundedio"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Options select the proxies to query.
type Options struct {
	// Namespace and Selector select the pods of the proxy. Port is the port of /livez.
	Namespace, Selector string
	Port                int
}

// Node is the state of the proxy on one node.
//
// Its JSON names are an interface: scripts read them.
type Node struct {
	Node string `json:"node"`
	Pod  string `json:"pod"` // empty if no proxy runs there
	// InSync reports whether the proxy responds and is healthy, no change has failed or is overdue, and no other service
	// proxy is on the node.
	InSync bool `json:"inSync"`
	// Problem is the reason why InSync is false; empty if it is true.
	Problem string `json:"problem"`
	// Synced is when the newest accepted sync began; zero if unknown.
	Synced time.Time `json:"synced"`
	// InvalidObjects is the number of invalid objects. Interruptions are the resources whose watches are interrupted;
	// never null.
	InvalidObjects int                   `json:"refusedObjects"`
	Interruptions  []status.Interruption `json:"interruptions"`
}

// maxConcurrent is the maximum number of concurrent requests.
const maxConcurrent = 32

// Limits on the time and size of a response, and on what is kept of it: the pod or its node may be compromised. A
// proxy's page has about 500 bytes, including the reason of a failure, and fewer than ten resources.
const (
	timeout          = 5 * time.Second
	maxResponse      = 64 << 10
	maxInterruptions = 20
)

// CheckNodes queries the proxies of all Nodes, in the order of their names. It omits Nodes that do not run Linux unless
// a proxy pod is there. It needs permission to list Nodes, and in the namespace to list pods and to get pods/proxy. It
// returns an error if a list fails; a proxy that does not respond is not an error.
func CheckNodes(ctx context.Context, config *rest.Config, options Options) ([]Node, error) {
	c, err := newChecker(config, options)
	if err != nil {
		return nil, fmt.Errorf("create client for %s: %w", config.Host, err)
	}
	nodes, err := c.api.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	pods, err := c.api.Pods(options.Namespace).List(ctx, metav1.ListOptions{LabelSelector: options.Selector})
	if err != nil {
		return nil, fmt.Errorf("list pods in namespace %s: %w", options.Namespace, err)
	}
	podOn := map[string]string{}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.DeletionTimestamp == nil {
			podOn[pod.Spec.NodeName] = pod.Name
		}
	}
	nodes.Items = slices.DeleteFunc(nodes.Items, func(node corev1.Node) bool {
		return !policy.IsLinux(node.Labels) && podOn[node.Name] == ""
	})
	results := make([]Node, len(nodes.Items))
	var requests sync.WaitGroup
	free := make(chan struct{}, maxConcurrent)
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		results[i] = Node{Node: name, Pod: podOn[name], Problem: "no proxy runs on this node", Interruptions: []status.Interruption{}}
		if results[i].Pod == "" {
			continue
		}
		free <- struct{}{}
		requests.Go(func() {
			defer func() { <-free }()
			results[i].fetch(ctx, c)
		})
	}
	requests.Wait()
	slices.SortFunc(results, func(a, b Node) int { return strings.Compare(a.Node, b.Node) })
	return results, ctx.Err()
}

// checker sends requests to the API server, and through it to the pods.
type checker struct {
	Options
	http *http.Client
	api  *corev1client.CoreV1Client
}

func newChecker(config *rest.Config, options Options) (*checker, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // no limit, because maxConcurrent limits the requests
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	api, err := corev1client.NewForConfigAndClient(config, client)
	return &checker{options, client, api}, err
}

// livez gets the page from a proxy's pod. It does not use client-go, which would read a response of any size, and
// follow the pod's redirects with the user's token.
func (c *checker) livez(ctx context.Context, pod string) (status int, body []byte, err error) {
	url := c.api.RESTClient().Get().Namespace(c.Namespace).Resource("pods").Name(fmt.Sprintf("%s:%d", pod, c.Port)).SubResource("proxy").
		Suffix("livez").URL()
	return boundedio.Get(ctx, *c.http, url.String(), maxResponse, timeout)
}

// fetch queries the proxy of the node and fills in the result.
func (n *Node) fetch(ctx context.Context, c *checker) {
	code, body, err := c.livez(ctx, n.Pod)
	var page status.Page
	if json.Unmarshal(body, &page) != nil || page.Status == nil { // an unhealthy proxy responds with 503 and the same page
		n.Problem = explainMissingPage(code, body, err)
		return
	}
	n.InvalidObjects = page.InvalidObjects
	for _, interruption := range page.Interruptions[:min(len(page.Interruptions), maxInterruptions)] {
		interruption.Resource, interruption.Reason = sanitize.Truncate(interruption.Resource), sanitize.Truncate(interruption.Reason)
		n.Interruptions = append(n.Interruptions, interruption)
	}
	for _, family := range page.Status {
		n.Synced = family.LastUpdated
	}
	switch {
	case page.LastError != "":
		n.Problem = "the last sync failed: " + sanitize.Truncate(page.LastError)
	case !page.Healthy:
		n.Problem = "a change has been pending since " + page.PendingSince.UTC().Format(time.TimeOnly) + " UTC"
	case len(page.OtherProxies) > 0:
		n.Problem = strings.Join(page.OtherProxies, "; ")
	default:
		n.InSync, n.Problem = true, ""
	}
}

// explainMissingPage returns the reason why a response is not a proxy's page. The response may come from the API server
// itself, which gives its reason in a Status.
func explainMissingPage(status int, body []byte, err error) string {
	var failure metav1.Status
	switch {
	case err != nil:
		return "request failed: " + sanitize.Truncate(err.Error())
	case status == http.StatusForbidden:
		return "getting pods/proxy in this namespace is forbidden"
	case status == http.StatusOK:
		return "the response does not come from a proxy"
	case json.Unmarshal(body, &failure) == nil && failure.Message != "":
		return "request failed: " + sanitize.Truncate(failure.Message)
	}
	return fmt.Sprintf("request failed: %d %s", status, http.StatusText(status))
}
