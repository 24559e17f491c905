# Installs the packages named as arguments, as root. It prevents them from starting services, and PostgreSQL from making a
# default cluster, and removes both rules at the end. It does not change a rule that already exists.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
policy=/usr/sbin/policy-rc.d
cluster=/etc/postgresql-common/createcluster.d/almoner.conf
made_policy= made_cluster= made_folders=
clean() {
	[ -z "$made_policy" ] || rm -f "$policy"
	[ -z "$made_cluster" ] || rm -f "$cluster"
	[ -z "$made_folders" ] || rmdir --ignore-fail-on-non-empty "${cluster%/*}" /etc/postgresql-common 2>/dev/null || true
}
trap clean EXIT
trap 'exit 130' INT TERM HUP

if [ ! -e "$policy" ] && [ ! -L "$policy" ]; then
	made_policy=1
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
if [ ! -e "$cluster" ]; then
	[ -d "${cluster%/*}" ] || { made_folders=1; mkdir -p "${cluster%/*}"; }
	made_cluster=1
	printf 'create_main_cluster = false\n' >"$cluster"
fi

apt="apt-get -q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 -o Acquire::http::Timeout=20"
$apt update || echo "not all package lists were refreshed; continuing with the existing ones"
$apt install --yes --no-install-recommends "$@"
