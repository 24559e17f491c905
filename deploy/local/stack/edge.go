package stack

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/deploy/local/gateway"
	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/mailbox"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/server"
)

// An edge is the running gateway.
type edge struct {
	stop context.CancelFunc
	done chan struct{}
	err  error // why the gateway ended; read after done is closed
	both sync.WaitGroup
	log  *os.File

	traces *server.Tracing
}

// traceDelay is short, so that traces appear immediately on a developer's machine.
const traceDelay = 200 * time.Millisecond

// openEdge listens on both loopback addresses, because "localhost" may be either; without IPv6, on one.
func (s *Stack) openEdge() (*edge, error) {
	var settings server.TraceSettings
	if _, err := envconf.Load(&settings, pairs(s.traceSettings())); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(s.home.logFile("gateway"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	log := web.NewLogger(file, slog.LevelInfo)
	traces, err := server.StartTracing(context.Background(), settings, "gateway", traceDelay, log)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	e := &edge{stop: stop, done: make(chan struct{}), log: file, traces: traces}
	handler := gateway.New(hosts(s.Authservers), hosts(s.Resources), traces, log)
	listening := make(chan net.Addr, 1)
	ready := func(address net.Addr) { listening <- address }
	e.both.Go(func() {
		e.err = web.Serve(ctx, web.Server{Address: loopback(s.ports.api)}, handler, log, ready)
		close(e.done)
	})
	select {
	case <-listening:
	case <-e.done:
		e.close()
		return nil, e.err
	}
	e.both.Go(func() {
		second := web.Server{Address: net.JoinHostPort("::1", strconv.Itoa(s.ports.api))}
		if err := web.Serve(ctx, second, handler, log, nil); err != nil {
			log.Warn("gateway not listening on ::1", "cause", err.Error())
		}
	})
	return e, nil
}

func (e *edge) close() {
	e.stop()
	e.both.Wait()
	e.traces.Stop()
	_ = e.log.Close()
}

// ports are the ports of the API, the pages and resourceapi, and the preferred port of the mailbox, or 0 for any.
type ports struct{ api, app, resource, mailbox int }

// choosePorts returns three consecutive free ports starting at first, or any three if first is 0.
func choosePorts(first int) (ports, error) {
	if first == 0 {
		free, err := freePorts(3)
		if err != nil {
			return ports{}, err
		}
		return ports{api: free[0], app: free[1], resource: free[2]}, nil
	}
	if first < 1 || first > 65533 {
		return ports{}, fmt.Errorf("PORT is %d, but it and the next two ports must be between 1 and 65535", first)
	}
	for port := first; port < first+3; port++ {
		err := localstore.CheckPort(port)
		if errors.Is(err, syscall.EADDRINUSE) {
			const format = "port %d is in use by another program: stop it, or use other ports with: make run PORT=9000"
			return ports{}, fmt.Errorf(format, port)
		}
		if err != nil {
			const format = "port %d cannot be used (%w): use other ports with: make run PORT=9000"
			return ports{}, fmt.Errorf(format, port, err)
		}
	}
	chosen := ports{api: first, app: first + 1, resource: first + 2}
	if localstore.CheckPort(first+3) == nil {
		chosen.mailbox = first + 3
	}
	return chosen, nil
}

func freePorts(count int) ([]int, error) {
	var out []int
	for len(out) < count {
		port, err := localstore.FreePort()
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, port) {
			out = append(out, port)
		}
	}
	return out, nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// openMailbox starts a mailbox that gets all mail of the deployment, and its page on a loopback port.
func (s *Stack) openMailbox() (err error) {
	if s.mailbox, err = mailbox.Start(); err != nil {
		return fmt.Errorf("start the mailbox: %w", err)
	}
	s.mailbox.Spell = spelling.Key
	listener, err := net.Listen("tcp", loopback(s.ports.mailbox))
	if err != nil {
		return fmt.Errorf("start the mailbox: %w", err)
	}
	s.mails = &http.Server{Handler: s.mailbox, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.mails.Serve(listener) }() // ends with Stop
	s.Demo.Mailbox = &demo.Mailbox{URL: "http://" + listener.Addr().String() + "/"}
	return nil
}

// mailSettings are authserver's settings of the mailbox, or none.
func (s *Stack) mailSettings() map[string]string {
	if s.mailbox == nil {
		return nil
	}
	return map[string]string{
		"ALMONER_SMTP_URL":  s.mailbox.URL(),
		"ALMONER_MAIL_FROM": "Almoner <almoner@example.org>",
	}
}

// Mailbox returns the mailbox of the deployment, or nil unless Options.Mailbox.
func (s *Stack) Mailbox() *mailbox.Mailbox { return s.mailbox }

// receiverSettings are the services' settings for webhook receivers on this machine, or none.
func (s *Stack) receiverSettings() (map[string]string, error) {
	if !s.options.LocalReceivers {
		return map[string]string{}, nil
	}
	path := s.home.path("localhost.crt")
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		content, err = makeCertificate(path, s.home.path("localhost.key"), time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("the certificate of webhook receivers: %w", err)
	}
	return map[string]string{"ALMONER_WEBHOOK_CA": string(content)}, nil
}

// makeCertificate writes a certificate for localhost and its key in PEM. It returns the certificate.
func makeCertificate(path, keyPath string, now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "Almoner: webhook receivers on this machine"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(10, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	content := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyContent := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	if err := os.WriteFile(keyPath, keyContent, 0o600); err != nil {
		return nil, err
	}
	return content, os.WriteFile(path, content, 0o600) // last: if it exists, so does the key
}
