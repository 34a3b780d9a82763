package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/vicinity-proxy/vicinity/pkg/httpserve"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Server serves a table to clients over gRPC.
type Server struct {
	Table *Table
	// IsLocalClient reports whether a client with an address is on this node. It is called for each connection.
	IsLocalClient func(netip.Addr) (bool, error)
	Log           *slog.Logger

	usage   usageTracker
	serving sync.WaitGroup
	// The logged lines of each kind. No kind suppresses lines of another.
	loggedRejections, loggedNames, loggedNACKs logLimiter
}

// The limits of a connection and of a stream.
const (
	// maxRequest is the maximum size of a request, in bytes.
	maxRequest = 64 << 10
	// windowSize is how many bytes of requests a stream may send before they are read. It does not grow, unlike gRPC's
	// default.
	windowSize = 64 << 10
	// responsePause is the pause of a stream after a response. Changes in the meantime are sent together.
	responsePause = 20 * time.Millisecond
	// keepaliveTime is how long a client may send nothing before it gets a keepalive ping.
	keepaliveTime = 30 * time.Second
	idleTime      = 5 * time.Minute
	bufferSize    = 4 << 10
)

// SocketPrefix is the prefix of the address of a unix socket.
const SocketPrefix = "unix://"

// Run serves addresses until ctx ends: IP:PORT, or unix:// and the path of a socket. If an address is not available,
// Run retries: connections to Services must not depend on xDS.
func (s *Server) Run(ctx context.Context, addresses []string) error {
	var running sync.WaitGroup
	for _, address := range addresses {
		running.Go(func() { s.runAt(ctx, address) })
	}
	running.Wait()
	return nil
}

func (s *Server) runAt(ctx context.Context, address string) {
	httpserve.Retry(ctx, s.Log, "failed to serve xDS", func() error {
		err := s.serve(ctx, address)
		if err != nil {
			s.usage.setAddressError(address, err.Error())
		}
		return err
	})
}

func (s *Server) serve(ctx context.Context, address string) error {
	listener, err := listen(ctx, address)
	if err != nil {
		return fmt.Errorf("listen on --xds-bind-address %s: %w", address, err)
	}
	s.usage.setAddressError(address, "")
	s.Log.Info("serving xDS", "address", address, "domain", s.Table.domain)
	server := s.newServer()
	stop := context.AfterFunc(ctx, server.Stop) // clients keep their endpoints
	defer stop()
	err = server.Serve(limitListener{Listener: listener, admit: s.admitConnection})
	server.Stop()
	s.serving.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve --xds-bind-address %s: %w", address, err)
}

// listen listens on an address. It replaces a socket that an earlier process left behind. Every process that can reach
// the socket may use it.
func listen(ctx context.Context, address string) (net.Listener, error) {
	path, isSocket := strings.CutPrefix(address, SocketPrefix)
	var config net.ListenConfig
	if !isSocket {
		return config.Listen(ctx, "tcp", address)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	switch existing, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case existing.Mode().Type() != fs.ModeSocket:
		return nil, errors.New("a file that is not a socket exists there")
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// admitConnection admits clients of this node, with a bounded number of connections.
func (s *Server) admitConnection(connection net.Conn) (leave func()) {
	client := httpserve.ClientAddr(connection.RemoteAddr().String())
	if connection.RemoteAddr().Network() != "unix" {
		if isLocal, err := s.IsLocalClient(client); !isLocal {
			reason := "the route to the client uses a gateway"
			if err != nil {
				reason = err.Error()
			}
			_ = s.reject(RemoteClient, client, reason)
			return nil
		}
	}
	if !s.usage.admit(client, usageCounts{openConnections: 1}) {
		used, all := s.usage.usage(client)
		_ = s.reject(TooManyConnections, client,
			fmt.Sprintf("the client has %d, and all clients have %d", used.usageCounts[openConnections], all[openConnections]))
		return nil
	}
	return func() { s.usage.release(client, usageCounts{openConnections: 1}) }
}

// newServer returns a server with the methods that clients call: aggregated discovery, and discovery of endpoints only.
func (s *Server) newServer() *grpc.Server {
	server := grpc.NewServer(
		grpc.Creds(connCreds{insecure.NewCredentials()}),
		grpc.WaitForHandlers(true),
		grpc.ForceServerCodecV2(bytesCodec{}),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.StaticStreamWindowSize(windowSize), grpc.StaticConnWindowSize(windowSize),
		grpc.MaxConcurrentStreams(maxPerSocket),
		grpc.MaxHeaderListSize(bufferSize),
		grpc.ReadBufferSize(bufferSize), grpc.WriteBufferSize(bufferSize),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, MaxConnectionIdle: idleTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveTime / 3, PermitWithoutStream: true}),
	)
	for _, method := range []struct{ service, stream, only string }{
		{"envoy.service.discovery.v3.AggregatedDiscoveryService", "StreamAggregatedResources", ""},
		{"envoy.service.endpoint.v3.EndpointDiscoveryService", "StreamEndpoints", typeURLs[assignments]},
	} {
		handle := func(_ any, stream grpc.ServerStream) error { return s.handle(stream, method.only) }
		server.RegisterService(&grpc.ServiceDesc{
			ServiceName: method.service, HandlerType: (*any)(nil),
			Streams: []grpc.StreamDesc{{StreamName: method.stream, Handler: handle, ServerStreams: true, ClientStreams: true}},
		}, nil)
	}
	return server
}

// bytesCodec passes messages through unchanged: this package encodes them itself.
type bytesCodec struct{}

// Marshal returns an encoded message.
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// Unmarshal returns a received message undecoded.
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// Name returns the codec name that clients request.
func (bytesCodec) Name() string { return "proto" }

// handle serves one stream until its client ends it.
func (s *Server) handle(stream grpc.ServerStream, defaultType string) error {
	client := netip.Addr{}
	if from, ok := peer.FromContext(stream.Context()); ok {
		client = httpserve.ClientAddr(from.Addr.String())
	}
	if !s.usage.admit(client, usageCounts{openStreams: 1}) {
		return s.reject(TooManyStreams, client, fmt.Sprintf("the limit is %d for a client, %d for the socket, and %d in total",
			maxPerClient, maxPerSocket, maxStreams))
	}
	session := newSession(s.Table, &s.usage, client, defaultType)
	used, _ := s.usage.usage(client)
	s.serving.Add(1)
	ended := make(chan error, 1)
	go func() {
		defer s.serving.Done()
		loop := requestLoop{server: s, stream: stream, session: session, limiter: used.limiter}
		err := loop.run()
		if isRead := session.end(); !isRead && stream.Context().Err() == nil {
			closeConnection(stream.Context()) // the client has not cancelled it, and unread responses would stay in memory
		}
		ended <- err
	}()
	return s.sendLoop(stream, session, ended)
}

// sendLoop sends the due responses in sequence. It blocks if a client does not read, without delaying other streams.
func (s *Server) sendLoop(stream grpc.ServerStream, session *session, ended <-chan error) error {
	for {
		select {
		case err := <-ended:
			return err
		case <-session.changed:
		}
		for {
			k, response, hasRoom := session.next()
			if !hasRoom {
				session.changed.Notify() // retry soon
			}
			if response == nil {
				break
			}
			if err := stream.SendMsg(response); err != nil {
				return err
			}
			s.usage.updateCounts(func(counts *Counts) { counts.Sent[k]++ })
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(responsePause):
		}
	}
}

// requestLoop reads the requests of one stream.
type requestLoop struct {
	server  *Server
	stream  grpc.ServerStream
	session *session
	limiter *rate.Limiter
	node    string // the client's node ID
}

// run reads requests until the stream ends. The error is sent to the client.
func (r *requestLoop) run() error {
	if err := r.limiter.WaitN(r.stream.Context(), namesOfStream); err != nil {
		return err
	}
	for {
		var message []byte
		err := r.stream.RecvMsg(&message)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case status.Code(err) == codes.ResourceExhausted: // gRPC's code for a message that is too large
			return r.server.reject(TooLargeRequest, r.session.client, fmt.Sprintf("the limit is %d bytes", maxRequest))
		case err != nil:
			return err
		}
		if err := r.handle(message); err != nil {
			return err
		}
	}
}

func (r *requestLoop) handle(message []byte) error {
	s := r.server
	request, err := parseRequest(message)
	if waitErr := r.limiter.WaitN(r.stream.Context(), 1+len(request.names)); waitErr != nil {
		return waitErr
	}
	switch {
	case errors.Is(err, errTooManyNames):
		return s.reject(TooManyNames, r.session.client, err.Error())
	case err != nil:
		return s.reject(MalformedRequest, r.session.client, err.Error())
	}
	if r.node == "" { // the first request has it, and later ones may omit it
		r.node = sanitize.Truncate(request.node)
	}
	result, hasRoom := r.session.handleRequest(request)
	r.recordResult(result, request)
	if !hasRoom {
		return s.reject(TooManyNames, r.session.client, fmt.Sprintf("the limit is %d resources for a client, and %d in total",
			maxClientNames, maxAllNames))
	}
	return nil
}

// recordResult counts unknown names and rejected responses, and logs each once.
func (r *requestLoop) recordResult(result requestResult, request request) {
	s := r.server
	for _, name := range result.unknownNames {
		s.usage.updateCounts(func(counts *Counts) { counts.Rejected[UnknownName]++ })
		if name = sanitize.Truncate(name); s.loggedNames.allow(time.Now(), r.session.client, name) {
			s.Log.Warn("an xDS client requested a name that is not a TCP port of a Service; expected SERVICE.NAMESPACE.svc.DOMAIN:PORT",
				"name", name, "client", r.session.client, "nodeID", r.node)
		}
	}
	if result.isNACK {
		s.usage.updateCounts(func(counts *Counts) { counts.NACKed[result.requestKind]++ })
		detail := sanitize.Truncate(request.errorDetail)
		if s.loggedNACKs.allow(time.Now(), r.session.client, result.requestKind.String()+detail) {
			s.Log.Warn("an xDS client rejected a response; it keeps its previous configuration",
				"kind", result.requestKind, "error", detail, "client", r.session.client, "nodeID", r.node)
		}
	}
}
