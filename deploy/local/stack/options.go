// Package stack answers: how do all the parts of Almoner run together on one machine?
//
// Start brings up stores, schema, demo data, services and the gateway, in this order, and gives up whole when one of
// them fails. `make run` is a thin shell around it, and the end-to-end tests start the very same.
package stack

// Options say what to start, and where.
type Options struct {
	Home     string // the directory where everything is kept (.almoner); one Stack at a time uses it
	Binaries string // the directory with authserver and resourceapi (see Build)
	Tools    string // where package apt unpacked programs privately; "" when they are installed

	// Port is that of the API; the next one is login and settings, the one after that is resourceapi. 0: any three.
	Port int

	// DatabaseURL and RedisURL name servers to use instead of private ones. The database must be empty or hold this
	// demo, and its user may create roles.
	DatabaseURL string
	RedisURL    string

	// BaseURL and AppURL, for tests, are where callers reach the API and the pages by a gateway that somebody else
	// starts; "": at Port.
	BaseURL string
	AppURL  string

	Authservers int               // processes that take turns behind the gateway; 0 means 1
	Resources   int               // processes of resourceapi, likewise
	Worker      bool              // submissions are processed by a process of its own (Stack.Worker) and not by those
	Settings    map[string]string // further settings of the services, ALMONER_… → value
	// for tests: the directory with the programs of an earlier commit, which all processes but the first of each
	// service run; "": Binaries
	Earlier  string
	Observed bool // the services serve metrics (Service.Metrics)
	// where services and gateway send their traces (OTLP over HTTP); "" for what our environment says
	Collector string
	Volatile  bool // for tests: the stores do not survive a power cut
	// Detour, for tests, is told where Postgres listens and says where the services are to connect in its place; nil:
	// there.
	Detour func(address string) string
	Say    func(string) // is told what happens; nil: nobody is
}

func (o Options) say(line string) {
	if o.Say != nil {
		o.Say(line)
	}
}
