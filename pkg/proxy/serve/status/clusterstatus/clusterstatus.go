// Package clusterstatus asks the proxies of all nodes how they are, through the API server.
//
// It uses the proxy subresource of pods, and the address that serves /livez: that one is open to the node's neighbours
// anyway, while the metrics are mostly served on loopback. exec would need a larger permission: to run any command in
// the pod, with its privileges.
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

// Options say whom to ask.
type Options struct {
	// Namespace and Selector choose the pods of the proxy, and Port is where they serve /livez.
	Namespace, Selector string
	Port                int
}

// Node is the state of the proxy on one node.
//
// Its JSON names are an interface: scripts read them.
type Node struct {
	Node string `json:"node"`
	Pod  string `json:"pod"` // empty if no proxy runs there
	// InSync: the proxy answers, is healthy, no change has failed or waits, and no other service proxy is on the node.
	InSync bool `json:"inSync"`
	// Problem says why not; empty if it agrees.
	Problem string `json:"problem"`
	// Synced is when the newest accepted sync began; zero if unknown.
	Synced time.Time `json:"synced"`
	// InvalidObjects is how many objects are left out, and Interruptions are the resources whose watches are
	// interrupted; never null.
	InvalidObjects int                   `json:"refusedObjects"`
	Interruptions  []status.Interruption `json:"interruptions"`
}

// atOnce is how many proxies are asked at a time.
const atOnce = 32

// How long an answer may take, and how much of it is read and kept: a pod, or its node, may be anybody's. A proxy's
// page has some 500 bytes, the reason of a failure among them, and names fewer than ten resources.
const (
	timeout          = 5 * time.Second
	maxResponse      = 64 << 10
	maxInterruptions = 20
)

// CheckNodes asks the proxies of all Nodes, in the order of their names. Nodes that do not run Linux are left out, unless a pod is
// there. It needs to list Nodes, to list pods in the namespace,
// and to get pods/proxy there. An error says what could not be listed; a proxy that does not answer is no error.
func CheckNodes(ctx context.Context, config *rest.Config, options Options) ([]Node, error) {
	c, err := newChecker(config, options)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	nodes, err := c.api.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	pods, err := c.api.Pods(options.Namespace).List(ctx, metav1.ListOptions{LabelSelector: options.Selector})
	if err != nil {
		return nil, fmt.Errorf("listing pods in namespace %s: %w", options.Namespace, err)
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
	answers := make([]Node, len(nodes.Items))
	var requests sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		answers[i] = Node{Node: name, Pod: podOn[name], Problem: "no proxy runs there", Interruptions: []status.Interruption{}}
		if answers[i].Pod == "" {
			continue
		}
		free <- struct{}{}
		requests.Go(func() {
			defer func() { <-free }()
			answers[i].fetch(ctx, c)
		})
	}
	requests.Wait()
	slices.SortFunc(answers, func(a, b Node) int { return strings.Compare(a.Node, b.Node) })
	return answers, ctx.Err()
}

// checker asks the API server, and through it the pods.
type checker struct {
	Options
	http *http.Client
	api  *corev1client.CoreV1Client
}

func newChecker(config *rest.Config, options Options) (*checker, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // atOnce bounds it
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	api, err := corev1client.NewForConfigAndClient(config, client)
	return &checker{options, client, api}, err
}

// livez asks a proxy's pod for the page. It does not use client-go, which would read everything that a pod answers, and
// follow the pod's redirects with the user's token.
func (c *checker) livez(ctx context.Context, pod string) (status int, body []byte, err error) {
	url := c.api.RESTClient().Get().Namespace(c.Namespace).Resource("pods").Name(fmt.Sprintf("%s:%d", pod, c.Port)).SubResource("proxy").
		Suffix("livez").URL()
	return boundedio.Get(ctx, *c.http, url.String(), maxResponse, timeout)
}

// fetch asks the proxy of the node.
func (n *Node) fetch(ctx context.Context, c *checker) {
	code, body, err := c.livez(ctx, n.Pod)
	var said status.Page
	if json.Unmarshal(body, &said) != nil || said.Status == nil { // an unhealthy proxy answers 503, with the same page
		n.Problem = explainMissingPage(code, body, err)
		return
	}
	n.InvalidObjects = said.RejectedTotal
	for _, one := range said.Interruptions[:min(len(said.Interruptions), maxInterruptions)] {
		one.Resource, one.Reason = sanitize.Truncate(one.Resource), sanitize.Truncate(one.Reason)
		n.Interruptions = append(n.Interruptions, one)
	}
	for _, family := range said.Status {
		n.Synced = family.LastUpdated
	}
	switch {
	case said.LastError != "":
		n.Problem = "the last sync failed: " + sanitize.Truncate(said.LastError)
	case !said.Healthy:
		n.Problem = "a change waits since " + said.PendingSince.UTC().Format(time.TimeOnly) + " UTC"
	case len(said.OtherProxies) > 0:
		n.Problem = strings.Join(said.OtherProxies, "; ")
	default:
		n.InSync, n.Problem = true, ""
	}
}

// explainMissingPage says why an answer is not a proxy's page. It may be from the API server itself, which gives its reason in a
// Status.
func explainMissingPage(status int, body []byte, err error) string {
	var refusal metav1.Status
	switch {
	case err != nil:
		return "it does not answer: " + sanitize.Truncate(err.Error())
	case status == http.StatusForbidden:
		return "you may not get pods/proxy in this namespace"
	case status == http.StatusOK:
		return "its answer is not that of a proxy"
	case json.Unmarshal(body, &refusal) == nil && refusal.Message != "":
		return "it does not answer: " + sanitize.Truncate(refusal.Message)
	}
	return fmt.Sprintf("it does not answer: %d %s", status, http.StatusText(status))
}
