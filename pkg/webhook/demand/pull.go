package demand

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/boundedio"
	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
)

const (
	// requestTimeout is how long a proxy may take to answer.
	requestTimeout = 5 * time.Second
	// idleConnTimeout is how long a connection to a proxy waits for the next round.
	idleConnTimeout = 90 * time.Second
)

// Puller asks proxies for their pages, over TLS. The proxies' certificates are self-signed: anybody who answers at a
// node's address sees the token, which is good only for that page.
type Puller struct {
	port    uint16
	client  http.Client
	mutex   sync.Mutex        // guards what follows
	cursors map[string]string // by node: those of the targets of the last round
}

// Target is a node's proxy.
type Target struct {
	Node string
	Addr netip.Addr
}

// PullErrors is how many proxies did not answer, and the reason of one of them.
type PullErrors struct {
	Nodes  int
	Sample error
}

// NewPuller returns a puller that has asked nobody. The proxies listen on a port of their nodes, which dial reaches; nil is the
// usual dial.
func NewPuller(port uint16, dial func(ctx context.Context, network, address string) (net.Conn, error)) *Puller {
	return &Puller{port: port, client: boundedio.NewClient(boundedio.ClientOptions{
		Timeout: requestTimeout, KeepIdle: idleConnTimeout, Dial: dial,
		TLS: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see Puller
	})}
}

// Pull asks all proxies, spread over some time, and hands over each answer as it arrives, one at a time. Each proxy is
// asked when its turn comes, even if others have not answered yet: silent proxies delay nobody. So the requests of one
// patience run at once: a tenth of all, if they are spread over 48 s.
func (p *Puller) Pull(
	ctx context.Context, token string, targets []Target, over time.Duration, reporting func(node string, page demandapi.Page),
) PullErrors {
	p.pruneCursors(targets)
	var pulling sync.WaitGroup
	var mutex sync.Mutex
	var silence PullErrors
	began := time.Now()
	for i, target := range targets {
		due := time.Duration(float64(over) * float64(i) / float64(len(targets)))
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
				silence.Nodes++
				silence.Sample = fmt.Errorf("ask the proxy of node %s at %s what it counted: %w", target.Node, p.at(target), err)
				return
			}
			reporting(target.Node, page)
		})
	}
	pulling.Wait()
	return silence
}

// pruneCursors forgets the cursors of nodes that are gone.
func (p *Puller) pruneCursors(targets []Target) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	left := make(map[string]string, len(targets))
	for _, target := range targets {
		left[target.Node] = p.cursors[target.Node]
	}
	p.cursors = left
}

func (p *Puller) at(target Target) string {
	return net.JoinHostPort(target.Addr.String(), strconv.Itoa(int(p.port)))
}

func (p *Puller) pull(ctx context.Context, token string, target Target) (demandapi.Page, error) {
	p.mutex.Lock()
	cursor := p.cursors[target.Node]
	p.mutex.Unlock()
	address := url.URL{
		Scheme: "https", Host: p.at(target), Path: demandapi.Path, RawQuery: url.Values{demandapi.After: {cursor}}.Encode(),
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
		return demandapi.Page{}, fmt.Errorf("read the page: %w", err)
	}
	p.mutex.Lock()
	p.cursors[target.Node] = page.Cursor
	p.mutex.Unlock()
	return page, nil
}

// bearerTransport shows a token.
type bearerTransport struct {
	token string
	next  http.RoundTripper
}

// RoundTrip is part of http.RoundTripper.
func (w bearerTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+w.token)
	return w.next.RoundTrip(request)
}
