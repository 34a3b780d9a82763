package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// dialRequest configures the connections of a request to dial.
type dialRequest struct {
	network    string // tcp or udp
	address    string
	count      int
	timeout    time.Duration // of each connection
	interval   time.Duration // between the starts of two connections
	sourcePort int           // 0 means any
	overlap    bool          // connections do not wait for earlier ones
}

const (
	defaultTimeout = 2 * time.Second
	maxCount       = 100_000
)

var (
	errNoAddress = errors.New("address is missing: want HOST:PORT")
	errNetwork   = errors.New("network: want tcp or udp")
)

// parseDialRequest parses the query of a request. Only the address is required.
func parseDialRequest(r *http.Request) (o dialRequest, err error) {
	o = dialRequest{network: "tcp", address: r.FormValue("address"), count: 1, timeout: defaultTimeout}
	if network := r.FormValue("network"); network != "" {
		o.network = network
	}
	switch {
	case o.address == "":
		return o, errNoAddress
	case o.network != "tcp" && o.network != "udp":
		return o, errNetwork
	}
	return o, errors.Join(
		number(r, "count", &o.count, maxCount), number(r, "source_port", &o.sourcePort, 65535),
		duration(r, "timeout", &o.timeout), duration(r, "interval", &o.interval), boolean(r, "overlap", &o.overlap),
	)
}

func number(r *http.Request, name string, into *int, most int) error {
	text := r.FormValue(name)
	if text == "" {
		return nil
	}
	value, err := strconv.Atoi(text)
	if err != nil || value < 0 || value > most {
		return fmt.Errorf("%s %q: want a number from 0 to %d", name, text, most)
	}
	*into = value
	return nil
}

func duration(r *http.Request, name string, into *time.Duration) error {
	text := r.FormValue(name)
	if text == "" {
		return nil
	}
	value, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	*into = value
	return nil
}

func boolean(r *http.Request, name string, into *bool) error {
	text := r.FormValue(name)
	if text == "" {
		return nil
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	*into = value
	return nil
}
