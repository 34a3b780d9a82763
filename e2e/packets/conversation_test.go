package packets_test

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// conversation is one TCP connection that stays open.
type conversation struct {
	conn   net.Conn
	reader *bufio.Reader
}

func openConversation(t *testing.T, client *fabric.Namespace, to path) *conversation {
	t.Helper()
	conn, err := client.Dial(to.network, to.addr.String(), fabric.Patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := &conversation{conn: conn, reader: bufio.NewReader(conn)}
	c.ask(t)
	c.ask(t)
	return c
}

// ask asks once more over the same connection, and returns the pod that answers.
func (c *conversation) ask(t *testing.T) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := request.Write(c.conn); err != nil {
		t.Fatalf("ask over the open connection: %v", err)
	}
	response, err := http.ReadResponse(c.reader, request)
	if err != nil {
		t.Fatalf("read the answer over the open connection: %v", err)
	}
	defer response.Body.Close()
	var reply fabric.Reply
	if err := json.NewDecoder(response.Body).Decode(&reply); err != nil {
		t.Fatal(err)
	}
	return reply.Pod
}
