// Package stack runs all parts of Almoner together on one machine.
//
// Start starts stores, schema, demo data, services and the gateway, in this order, and stops everything if one of them
// fails. `make run` is a thin wrapper around it, and the end-to-end tests use it too.
package stack

// Options configure a Stack.
type Options struct {
	Home     string // the data directory (.almoner); one Stack at a time uses it
	Binaries string // the directory with authserver and resourceapi (see Build)
	Tools    string // directory of the privately unpacked programs of package apt; "" if they are installed

	// Port is the port of the API. The next one is login and settings, the one after that is resourceapi. 0 means any
	// three.
	Port int

	// DatabaseURL and RedisURL name servers to use instead of private ones. The database must be empty or hold this
	// demo, and its user must be allowed to create roles.
	DatabaseURL string
	RedisURL    string

	// BaseURL and AppURL, for tests, are the addresses of the API and the pages at a gateway that the test starts; ""
	// means at Port.
	BaseURL string
	AppURL  string

	Authservers int               // processes that alternate behind the gateway; 0 means 1
	Resources   int               // processes of resourceapi, in the same way
	Worker      bool              // a separate process (Stack.Worker) processes submissions
	Settings    map[string]string // further settings of the services, ALMONER_… → value
	// EarlierBinaries, for tests, is the directory of the programs of an earlier commit, which all processes except the
	// first of each service run; "" means Binaries.
	EarlierBinaries string
	Mailbox         bool // authserver sends its mail to a mailbox of this stack
	// LocalReceivers delivers webhooks to receivers on this machine that use the certificate localhost.crt in Home,
	// with the key localhost.key.
	LocalReceivers bool
	Observed       bool // the services serve metrics (Service.Metrics)
	// Collector is where services and gateway send their traces (OTLP over HTTP); "" means as the environment says.
	Collector string
	Volatile  bool // for tests: the stores do not survive a power cut
	// PostgresProxy, for tests, gets the address of Postgres and returns the address to which the services connect
	// instead; nil means no proxy.
	PostgresProxy func(address string) string
	Progress      func(string) // gets progress messages; may be nil
}

func (o Options) say(line string) {
	if o.Progress != nil {
		o.Progress(line)
	}
}
