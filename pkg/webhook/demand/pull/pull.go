// Package pull requests from proxies how many connections their nodes' clients opened.
package pull

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/boundedio"
	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
)

const (
	// requestTimeout bounds a request to a proxy.
	requestTimeout = 5 * time.Second
	// idleConnTimeout is how long an idle connection to a proxy stays open, so that the next round can reuse it.
	idleConnTimeout = 90 * time.Second
)

// Puller requests demand pages from proxies over TLS. The proxies' certificates are self-signed: any server at a node's
// address receives the token, which is valid for that page only.
type Puller struct {
	port    uint16
	client  http.Client
	mutex   sync.Mutex        // guards cursors
	cursors map[string]string // by node, for the targets of the last round
}

// Target is the proxy of a node.
type Target struct {
	Node string
	Addr netip.Addr
}

// Errors are the errors of failed requests, by node.
type Errors map[string]error

// Sample returns the error of the first node by name; nil if there is none.
func (e Errors) Sample() error {
	for _, node := range slices.Sorted(maps.Keys(e)) {
		return e[node]
	}
	return nil
}

// New returns a puller without cursors. The proxies listen on a port of their nodes, which dial reaches; nil
// means the default dialer.
func New(port uint16, dial func(ctx context.Context, network, address string) (net.Conn, error)) *Puller {
	return &Puller{port: port, client: boundedio.NewClient(boundedio.ClientOptions{
		Timeout: requestTimeout, KeepIdle: idleConnTimeout, Dial: dial,
		TLS: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see Puller
	})}
}

// Pull requests the pages of all proxies, spread evenly over a duration, and passes each one to onPage as it arrives,
// one call at a time. It does not wait for earlier requests, so proxies that do not respond do not delay others. Up to
// requestTimeout's worth of requests may run at once: a tenth of all, if they are spread over 48 s.
func (p *Puller) Pull(
	ctx context.Context, token string, targets []Target, duration time.Duration, onPage func(node string, page demandapi.Page),
) Errors {
	p.pruneCursors(targets)
	var pulling sync.WaitGroup
	var mutex sync.Mutex
	errs := Errors{}
	began := time.Now()
	for i, target := range targets {
		due := time.Duration(float64(duration) * float64(i) / float64(len(targets)))
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(began.Add(due))):
		}
		if ctx.Err() != nil {
			break
		}
		pulling.Go(func() {
			page, err := p.pull(ctx, token, target)
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				errs[target.Node] = fmt.Errorf("get demand from the proxy of node %s at %s: %w", target.Node, p.addressOf(target), err)
				return
			}
			onPage(target.Node, page)
		})
	}
	pulling.Wait()
	return errs
}

// pruneCursors deletes the cursors of nodes that are no longer targets.
func (p *Puller) pruneCursors(targets []Target) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	kept := make(map[string]string, len(targets))
	for _, target := range targets {
		kept[target.Node] = p.cursors[target.Node]
	}
	p.cursors = kept
}

func (p *Puller) addressOf(target Target) string {
	return net.JoinHostPort(target.Addr.String(), strconv.Itoa(int(p.port)))
}

func (p *Puller) pull(ctx context.Context, token string, target Target) (demandapi.Page, error) {
	p.mutex.Lock()
	cursor := p.cursors[target.Node]
	p.mutex.Unlock()
	address := url.URL{
		Scheme: "https", Host: p.addressOf(target), Path: demandapi.Path, RawQuery: url.Values{demandapi.CursorParam: {cursor}}.Encode(),
	}
	client := p.client
	client.Transport = bearerTransport{token, client.Transport}
	status, body, err := boundedio.Get(ctx, client, address.String(), demandapi.MaxSize, requestTimeout)
	if err != nil {
		return demandapi.Page{}, err
	}
	if status != http.StatusOK {
		return demandapi.Page{}, fmt.Errorf("status %d: %.200q", status, body)
	}
	page, err := demandapi.Parse(body)
	if err != nil {
		return demandapi.Page{}, fmt.Errorf("parse the page: %w", err)
	}
	p.mutex.Lock()
	p.cursors[target.Node] = page.Cursor
	p.mutex.Unlock()
	return page, nil
}

// bearerTransport adds a bearer token to requests.
type bearerTransport struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t bearerTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+t.token)
	return t.next.RoundTrip(request)
}
