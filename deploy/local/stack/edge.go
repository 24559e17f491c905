package stack

import (
	"context"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/almonerhq/almoner/deploy/local/gateway"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/server/tracing"
)

// An edge is the running gateway.
type edge struct {
	stop context.CancelFunc
	done chan struct{}
	err  error // why the gateway ended; read after done is closed
	both sync.WaitGroup
	log  *os.File

	traces *tracing.Tracing
}

// traceDelay is short, so that traces appear immediately on a developer's machine.
const traceDelay = 200 * time.Millisecond

// openEdge listens on both loopback addresses, because "localhost" may be either; without IPv6, on one.
func openEdge(port int, backends gateway.Backends, settings tracing.Settings, logFile string) (*edge, error) {
	log, file, err := openLog(logFile)
	if err != nil {
		return nil, err
	}
	traces, err := tracing.Start(context.Background(),
		tracing.Options{Settings: settings, Service: "gateway", Delay: traceDelay}, log)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	e := &edge{stop: stop, done: make(chan struct{}), log: file, traces: traces}
	handler := gateway.New(backends, traces, log)
	listening := make(chan net.Addr, 1)
	ready := func(address net.Addr) { listening <- address }
	e.both.Go(func() {
		e.err = web.Serve(ctx, web.Server{Address: loopback(port)}, handler, log, ready)
		close(e.done)
	})
	select {
	case <-listening:
	case <-e.done:
		e.close()
		return nil, e.err
	}
	e.both.Go(func() {
		if err := web.Serve(ctx, web.Server{
			Address: net.JoinHostPort("::1", strconv.Itoa(port)),
		}, handler, log, nil); err != nil {
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
