package main

import (
	"context"
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

// ask reads a page of the proxy that runs on this machine. There may be none, or another program.
func ask(ctx context.Context, address, page string) ([]byte, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy of the environment's
	status, body, err := limited.Get(ctx, client, "http://"+net.JoinHostPort(host, port)+page, maxPage, pageTimeout)
	switch {
	case err != nil:
	case status == http.StatusNotFound:
		err = fmt.Errorf("%s: %w", page, errNoPage)
	case status != http.StatusOK:
		err = fmt.Errorf("%s answers %d %s", page, status, http.StatusText(status))
	}
	return body, err
}

// readFlags reads the page /flagz: those flags that have another value than by default.
func readFlags(text []byte, into map[string]string) {
	defaults := pflag.NewFlagSet("run", pflag.ContinueOnError)
	new(runFlags).register(defaults)
	for line := range strings.Lines(string(text)) {
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

// askFlags adds to what is said the flags that the proxy has. A proxy may be told to keep them to itself; then those that
// are given must do.
func askFlags(ctx context.Context, address string, given, said map[string]string) error {
	page, err := ask(ctx, address, "/flagz")
	switch {
	case err == nil:
		readFlags(page, said)
		return nil
	case !errors.Is(err, errNoPage):
		return err
	}
	for name := range given {
		if name != "metrics-bind-address" {
			return nil
		}
	}
	return fmt.Errorf("%w, so the flags of 'proxy run' must be given (its feature gate ComponentFlagz is off)", err)
}

// errNoPage says that the proxy serves no such page: a feature gate closes it, or the program is older than the page.
var errNoPage = errors.New("there is no such page")
