package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds"
)

// command is what to do with the channel of a name. It is dialled by the first.
type command struct {
	Channel string `json:"channel"`
	Target  string `json:"target"`
	// IdleAfter is after how many milliseconds without a call the channel is idle.
	IdleAfter int `json:"idleAfter"`
	// Calls is how many calls to make, one after the other; Timeout bounds each, in milliseconds.
	Calls   int  `json:"calls"`
	Timeout int  `json:"timeout"`
	Wait    bool `json:"wait"` // for a ready server
	// Load begins to call so many times a second, until Stop.
	Load int  `json:"load"`
	Stop bool `json:"stop"`
	// Until makes calls until each of these has answered, and nobody else for Calls calls; the answer says after how long.
	Until []string `json:"until"`
	Close bool     `json:"close"`
}

// answer counts calls by who answered, and errors.
type answer struct {
	Wrong   string         `json:"wrong,omitempty"`
	Answers map[string]int `json:"answers"`
	Errors  map[string]int `json:"errors"`
	// Took is how long everything took, Longest the longest call, and Last when the last call with another answer than
	// the ones in Until ended; in microseconds.
	Took    int64 `json:"took"`
	Longest int64 `json:"longest"`
	Last    int64 `json:"last"`
}

type channel struct {
	conn *grpc.ClientConn
	stop context.CancelFunc
	load sync.WaitGroup

	mutex  sync.Mutex
	result answer
}

// dialAll is applications that dial by xDS. It reads commands, one JSON object each, and answers each with one. It reads
// from GRPC_XDS_BOOTSTRAP_CONFIG where the control plane is, as any application does. What it calls are health checks,
// and what it counts is who answered: by the header "server", or by the address.
func dialAll(input io.Reader, output io.Writer) error {
	decoder, encoder := json.NewDecoder(input), json.NewEncoder(output)
	channels := map[string]*channel{}
	for {
		var next command
		if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		c := channels[next.Channel]
		if c == nil {
			options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
			if next.IdleAfter > 0 {
				options = append(options, grpc.WithIdleTimeout(time.Duration(next.IdleAfter)*time.Millisecond))
			}
			conn, err := grpc.NewClient(next.Target, options...)
			if err != nil {
				return err
			}
			c = &channel{conn: conn}
			channels[next.Channel] = c
		}
		result := c.do(next)
		if next.Close {
			if err := c.conn.Close(); err != nil {
				return err
			}
			delete(channels, next.Channel)
		}
		if err := encoder.Encode(result); err != nil {
			return err
		}
	}
}

func (c *channel) do(next command) answer {
	started := time.Now()
	switch {
	case next.Load > 0:
		c.reset()
		ctx, stop := context.WithCancel(context.Background())
		c.stop = stop
		c.load.Go(func() { c.callAll(ctx, next) })
		return answer{}
	case next.Stop:
		c.stop()
		c.load.Wait()
	case len(next.Until) > 0:
		c.reset()
		c.callUntil(next, started)
	default:
		c.reset()
		for range next.Calls {
			c.call(next)
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.result.Took = time.Since(started).Microseconds()
	return c.result
}

func (c *channel) reset() {
	c.result = answer{Answers: map[string]int{}, Errors: map[string]int{}}
}

// call makes one call, and returns who answered.
func (c *channel) call(next command) string {
	timeout := time.Duration(next.Timeout) * time.Millisecond
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var server peer.Peer
	var header metadata.MD
	began := time.Now()
	_, err := grpc_health_v1.NewHealthClient(c.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{},
		grpc.Peer(&server), grpc.Header(&header), grpc.WaitForReady(next.Wait))
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.result.Longest = max(c.result.Longest, time.Since(began).Microseconds())
	if err != nil {
		c.result.Errors[status.Code(err).String()+": "+status.Convert(err).Message()]++
		return ""
	}
	name := server.Addr.String()
	if says := header.Get("server"); len(says) > 0 { // behind an address that is translated
		name = says[0]
	}
	c.result.Answers[name]++
	return name
}

// callAll calls at a steady pace, whatever the calls take.
func (c *channel) callAll(ctx context.Context, next command) {
	pace := time.NewTicker(time.Second / time.Duration(next.Load))
	defer pace.Stop()
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
			calls.Go(func() { c.call(next) })
		}
	}
}

// callUntil calls until the right ones, and only those, have answered for a while.
func (c *channel) callUntil(next command, started time.Time) {
	right := map[string]bool{}
	for _, server := range next.Until {
		right[server] = true
	}
	seen, inRow := map[string]bool{}, 0
	for time.Since(started) < time.Duration(next.Timeout)*time.Millisecond {
		server := c.call(command{Timeout: next.Timeout, Wait: next.Wait})
		if inRow++; !right[server] {
			seen, inRow = map[string]bool{}, 0
			c.result.Last = time.Since(started).Microseconds()
			continue
		}
		if !seen[server] {
			seen[server] = true
		}
		if len(seen) == len(right) && inRow >= next.Calls {
			return
		}
	}
	missing := slices.DeleteFunc(slices.Clone(next.Until), func(server string) bool { return seen[server] })
	c.result.Wrong = fmt.Sprintf("after %d ms of %v these have not answered: %v; the last %d calls reached nobody else",
		next.Timeout, next.Until, missing, inRow)
}
