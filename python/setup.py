"""The wheel of a library that is built already (packaging/wheel.sh): of this platform, and of any Python 3."""
import os

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution


class Built(Distribution):
    def has_ext_modules(self):  # it has a library, and so goes where libraries go
        return True


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(version=os.environ["IBID_VERSION"], distclass=Built, cmdclass={"bdist_wheel": Wheel})
