package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/limited"
)

const (
	pageTimeout = 3 * time.Second
	// maxPage bounds what is read of a page, in bytes: some 40,000 refused Services.
	maxPage = 16 << 20
)

// ErrNoPage says that there is no such page: a feature gate disables it, the proxy is older than the page, or another
// program answered.
var ErrNoPage = errors.New("there is no such page")

// Ask reads a page of the proxy that runs on this machine. There may be no proxy, or another program at its address.
func Ask(ctx context.Context, address, page string) ([]byte, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	client := limited.NewClient(limited.ClientOptions{Patience: pageTimeout})
	status, body, err := limited.Get(ctx, client, "http://"+net.JoinHostPort(host, port)+page, maxPage, pageTimeout)
	switch {
	case err != nil:
	case status == http.StatusNotFound:
		err = fmt.Errorf("%s: %w", page, ErrNoPage)
	case status != http.StatusOK:
		err = fmt.Errorf("%s answers %d %s", page, status, http.StatusText(status))
	}
	return body, err
}

// Read reads a page of JSON.
func Read[T any](ctx context.Context, address, page string) (*T, error) {
	text, err := Ask(ctx, address, page)
	if err != nil {
		return nil, err
	}
	content := new(T)
	if err := json.Unmarshal(text, content); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", page, ErrNoPage, err)
	}
	return content, nil
}

// ReadFlags reads the page /flagz: the flags whose value is not the default.
func ReadFlags(page []byte, defaults *pflag.FlagSet, into map[string]string) {
	for line := range strings.Lines(string(page)) {
		name, value, found := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		flag := defaults.Lookup(name)
		if !found || flag == nil || value == flag.DefValue || value == flag.Value.String() {
			continue
		}
		if _, isList := flag.Value.(pflag.SliceValue); isList {
			value = strings.TrimSuffix(strings.TrimPrefix(value, "["), "]")
		}
		into[name] = value
	}
}
