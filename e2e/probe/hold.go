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
	connection := &held{conn: conn}
	go connection.run()
	respond(w, map[string]string{"id": h.add(connection)})
}

func (h *holds) add(connection *held) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	id := strconv.Itoa(h.last)
	h.byID[id] = connection
	return id
}

func (h *holds) report(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	connection := h.byID[r.PathValue("id")]
	h.mu.Unlock()
	if connection == nil {
		http.NotFound(w, r)
		return
	}
	respond(w, connection.state())
}

func (h *holds) end(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	connection := h.byID[r.PathValue("id")]
	delete(h.byID, r.PathValue("id"))
	h.mu.Unlock()
	if connection == nil {
		http.NotFound(w, r)
		return
	}
	connection.conn.Close()
	respond(w, connection.state())
}

// state is the state of a connection.
type state struct {
	Alive  bool   `json:"alive"`
	Server string `json:"server,omitempty"`
	Echoes int    `json:"echoes"`
	Error  string `json:"error,omitempty"`
}

func (h *held) state() state {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := state{Alive: h.err == nil, Server: h.server, Echoes: h.echoes}
	if h.err != nil {
		s.Error = errorText(h.err)
	}
	return s
}

// run reads the greeting, and then sends lines, one after each echo, until the connection fails.
func (h *held) run() {
	defer h.conn.Close()
	err := h.exchange()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

func (h *held) exchange() error {
	lines := bufio.NewReader(h.conn)
	greeting, err := h.read(lines)
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.server, _, _ = strings.Cut(greeting, " ")
	h.mu.Unlock()
	for number := 0; ; number++ {
		want := strconv.Itoa(number) + "\n"
		if _, err := h.conn.Write([]byte(want)); err != nil {
			return err
		}
		got, err := h.read(lines)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("sent %q, received %q", want, got)
		}
		h.mu.Lock()
		h.echoes++
		h.mu.Unlock()
		time.Sleep(echoInterval)
	}
}

func (h *held) read(lines *bufio.Reader) (string, error) {
	if err := h.conn.SetDeadline(time.Now().Add(echoTimeout)); err != nil {
		return "", err
	}
	return lines.ReadString('\n')
}
