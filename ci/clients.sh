# Sourced by the scripts that need clients of other projects. Sets $clients, their folder, and $python.
# Installs what is missing: tools from Debian's packages, libraries below the target folder.
clients=$(realpath -m "${CARGO_TARGET_DIR:-target}")/interop
python=$clients/python/bin/python

source ci/debian.sh
debian node nodejs
debian npm npm
debian go golang-go
debian /usr/share/python-wheels python3-venv
if ! cmp -s ci/interop/requirements.txt "$clients/requirements.txt"; then
  python3 -m venv --clear "$clients/python"
  retry "$python" -m pip install -q --disable-pip-version-check -r ci/interop/requirements.txt
  mkdir -p "$clients/node"
  retry npm install --silent --no-audit --no-fund --prefix "$clients/node" memjs@1.3.2 memcached@2.2.2
  cp ci/interop/requirements.txt "$clients/requirements.txt"
fi
