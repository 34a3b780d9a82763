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
func parseDialRequest(r *http.Request) (d dialRequest, err error) {
	d = dialRequest{network: "tcp", address: r.FormValue("address"), count: 1, timeout: defaultTimeout}
	if network := r.FormValue("network"); network != "" {
		d.network = network
	}
	switch {
	case d.address == "":
		return d, errNoAddress
	case d.network != "tcp" && d.network != "udp":
		return d, errNetwork
	}
	return d, errors.Join(
		parseNumber(r, "count", &d.count, maxCount), parseNumber(r, "source_port", &d.sourcePort, 65535),
		parseDuration(r, "timeout", &d.timeout), parseDuration(r, "interval", &d.interval), parseBool(r, "overlap", &d.overlap),
	)
}

func parseNumber(r *http.Request, name string, into *int, maximum int) error {
	text := r.FormValue(name)
	if text == "" {
		return nil
	}
	value, err := strconv.Atoi(text)
	if err != nil || value < 0 || value > maximum {
		return fmt.Errorf("%s %q: want a number from 0 to %d", name, text, maximum)
	}
	*into = value
	return nil
}

func parseDuration(r *http.Request, name string, into *time.Duration) error {
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

func parseBool(r *http.Request, name string, into *bool) error {
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
