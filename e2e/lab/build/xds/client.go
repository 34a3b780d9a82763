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

// command controls the channel to a name. The first command creates the channel.
type command struct {
	Channel string `json:"channel"`
	Target  string `json:"target"`
	// IdleAfter is the time without a call after which the channel becomes idle, in milliseconds.
	IdleAfter int `json:"idleAfter"`
	// Calls is the number of sequential calls; Timeout bounds each, in milliseconds.
	Calls   int  `json:"calls"`
	Timeout int  `json:"timeout"`
	Wait    bool `json:"wait"` // for a ready server
	// Load starts this number of calls per second, until Stop.
	Load int  `json:"load"`
	Stop bool `json:"stop"`
	// Until makes calls until each of these servers has replied, and no other server for Calls calls. The answer has the
	// time that it took.
	Until []string `json:"until"`
	Close bool     `json:"close"`
}

// answer counts calls by the server that replied, and errors.
type answer struct {
	Wrong   string         `json:"wrong,omitempty"`
	Answers map[string]int `json:"answers"`
	Errors  map[string]int `json:"errors"`
	// Took is the total time, Longest the longest call, and Last the time when the last call to a server that is not in
	// Until ended; in microseconds.
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

// dialAll runs clients that connect through xDS. It reads commands, one JSON object each, and writes an answer for
// each. Like any application, it finds the control plane in GRPC_XDS_BOOTSTRAP_CONFIG. Its calls are health checks. It
// counts them by server, which it identifies by the header "server" or by the address.
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

// call makes one call and returns the server that replied.
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
	if says := header.Get("server"); len(says) > 0 { // behind a translated address
		name = says[0]
	}
	c.result.Answers[name]++
	return name
}

// callAll starts calls at a constant rate, however long they take.
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

// callUntil makes calls until the expected servers, and no others, have replied for a while.
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
	c.result.Wrong = fmt.Sprintf("timed out after %d ms waiting for %v: no reply from %v; the last %d calls reached no other server",
		next.Timeout, next.Until, missing, inRow)
}
