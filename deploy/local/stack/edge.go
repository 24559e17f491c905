package stack

import (
	"context"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/almonerhq/almoner/deploy/local/gateway"
	"github.com/almonerhq/almoner/shared/tracing"
	"github.com/almonerhq/almoner/shared/web"
)

// edge is the gateway, listening.
type edge struct {
	stop context.CancelFunc
	done chan struct{}
	err  error // why it ended; read after done is closed
	both sync.WaitGroup
	log  *os.File

	traces *tracing.Tracing
}

// traceDelay is short, as whoever looks at traces here looks at once.
const traceDelay = 200 * time.Millisecond

// openEdge listens on both loopback addresses, as "localhost" may be either; without IPv6, on the one.
func openEdge(port int, backends gateway.Backends, settings tracing.Settings, logFile string) (*edge, error) {
	log, file, err := openLog(logFile)
	if err != nil {
		return nil, err
	}
	traces, err := tracing.Start(
		context.Background(),
		tracing.Options{Settings: settings, Service: "gateway", Delay: traceDelay},
		log,
	)
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
			log.Warn("the gateway does not serve on ::1", "cause", err.Error())
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
