package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// echoInterval is short, so that a broken connection is noticed soon.
	echoInterval = 50 * time.Millisecond
	// echoTimeout is the deadline for an echo: TCP retransmits for a while, and the machine may be slow.
	echoTimeout = 15 * time.Second
	dialTimeout = 10 * time.Second
)

// holds are the open connections, by id.
type holds struct {
	mu   sync.Mutex
	last int
	byID map[string]*held
}

// held is a connection on which we send lines that the server echoes.
type held struct {
	conn net.Conn

	mu     sync.Mutex
	server string // from its greeting
	echoes int
	err    error // that ended the connection; nil while it is open
}

func newHolds() *holds { return &holds{byID: map[string]*held{}} }

func (h *holds) open(w http.ResponseWriter, r *http.Request) {
	address := r.FormValue("address")
	if address == "" {
		respondError(w, errNoAddress)
		return
	}
	conn, err := net.DialTimeout("tcp", address, dialTimeout)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	c := &held{conn: conn}
	go c.talk()
	respond(w, map[string]string{"id": h.add(c)})
}

func (h *holds) add(c *held) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	id := strconv.Itoa(h.last)
	h.byID[id] = c
	return id
}

func (h *holds) report(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	c := h.byID[r.PathValue("id")]
	h.mu.Unlock()
	if c == nil {
		http.NotFound(w, r)
		return
	}
	respond(w, c.state())
}

func (h *holds) end(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	c := h.byID[r.PathValue("id")]
	delete(h.byID, r.PathValue("id"))
	h.mu.Unlock()
	if c == nil {
		http.NotFound(w, r)
		return
	}
	c.conn.Close()
	respond(w, c.state())
}

// state is the state of a connection.
type state struct {
	Alive  bool   `json:"alive"`
	Server string `json:"server,omitempty"`
	Echoes int    `json:"echoes"`
	Error  string `json:"error,omitempty"`
}

func (c *held) state() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := state{Alive: c.err == nil, Server: c.server, Echoes: c.echoes}
	if c.err != nil {
		s.Error = errorText(c.err)
	}
	return s
}

// talk reads the greeting, and then sends lines, one after each echo, until the connection fails.
func (c *held) talk() {
	defer c.conn.Close()
	err := c.exchange()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *held) exchange() error {
	lines := bufio.NewReader(c.conn)
	greeted, err := c.read(lines)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.server, _, _ = strings.Cut(greeted, " ")
	c.mu.Unlock()
	for number := 0; ; number++ {
		want := strconv.Itoa(number) + "\n"
		if _, err := c.conn.Write([]byte(want)); err != nil {
			return err
		}
		got, err := c.read(lines)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("sent %q, received %q", want, got)
		}
		c.mu.Lock()
		c.echoes++
		c.mu.Unlock()
		time.Sleep(echoInterval)
	}
}

func (c *held) read(lines *bufio.Reader) (string, error) {
	if err := c.conn.SetDeadline(time.Now().Add(echoTimeout)); err != nil {
		return "", err
	}
	return lines.ReadString('\n')
}
