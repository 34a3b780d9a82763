package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/boundedio"
)

const (
	pageTimeout = 3 * time.Second
	// maxPage limits the size of a page that is read, in bytes: about 40,000 rejected Services.
	maxPage = 16 << 20
)

// ErrNoPage means that there is no such page: a feature gate disables it, the proxy is older than the page, or another
// program responded.
var ErrNoPage = errors.New("no such page")

// FetchPage reads a page of the proxy on this machine. There may be no proxy, or another program at its address. An
// address without a host, or with the unspecified one, stands for both loopback addresses.
func FetchPage(ctx context.Context, address, page string) ([]byte, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	hosts := []string{host}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		hosts = []string{"127.0.0.1", "::1"}
	}
	var firstErr error
	for _, host := range hosts {
		body, err := get(ctx, net.JoinHostPort(host, port), page)
		if err == nil {
			return body, nil
		}
		firstErr = cmp.Or(firstErr, err)
	}
	return nil, firstErr
}

// get reads a page at one address.
func get(ctx context.Context, address, page string) ([]byte, error) {
	client := boundedio.NewClient(boundedio.ClientOptions{Timeout: pageTimeout})
	status, body, err := boundedio.Get(ctx, client, "http://"+address+page, maxPage, pageTimeout)
	switch {
	case err != nil:
	case status == http.StatusNotFound:
		err = fmt.Errorf("%s: %w", page, ErrNoPage)
	case status != http.StatusOK:
		err = fmt.Errorf("%s returned %d %s", page, status, http.StatusText(status))
	}
	return body, err
}

// Fetch reads a page of JSON.
func Fetch[T any](ctx context.Context, address, page string) (*T, error) {
	text, err := FetchPage(ctx, address, page)
	if err != nil {
		return nil, err
	}
	content := new(T)
	if err := json.Unmarshal(text, content); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", page, ErrNoPage, err)
	}
	return content, nil
}
